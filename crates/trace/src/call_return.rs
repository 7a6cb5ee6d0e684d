//! The return of a library function, with its result.

use std::fmt::{self, Display, Formatter};

use crate::format::{Defect, Input, MAX_TEXT, put_text, put_varint};

/// An object of libpmemobj.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmemObject {
    /// Id of the pool (`pool_uuid_lo`); 0 in traces before version 4.
    pub pool: u64,
    /// Offset of the object in the pool, in bytes.
    pub offset: u64,
    /// Bytes of the object that the program may use; 0 if the size is not known.
    pub usable: u64,
}

/// The return of a library function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallReturn<'a> {
    /// Name of the function.
    pub name: &'a str,
    /// The six register arguments of the call, as they were at its beginning.
    pub arguments: [u64; 6],
    /// Value of the result register (rax) at the return.
    pub result: u64,
    /// The object that the function has allocated or reserved.
    pub object: Option<PmemObject>,
}

impl<'a> CallReturn<'a> {
    /// The return that a call stands for in format versions 1 to 3. There, the return of an object was a call
    /// with the object's offset in place of the sixth argument.
    pub(crate) fn of_call(name: &'a str, arguments: &[u64; 6]) -> Option<CallReturn<'a>> {
        const ALLOCATING: [&str; 5] = [
            "pmemobj_reserve",
            "pmemobj_xreserve",
            "pmemobj_alloc",
            "pmemobj_xalloc",
            "pmemobj_zalloc",
        ];
        let [a, b, c, d, e, offset] = *arguments;
        ALLOCATING.contains(&name).then_some(CallReturn {
            name,
            arguments: [a, b, c, d, e, 0],
            result: 0,
            object: Some(PmemObject {
                pool: 0,
                offset,
                usable: 0,
            }),
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.object.is_some() as u8);
        put_text(out, self.name);
        for argument in self.arguments {
            put_varint(out, argument);
        }
        put_varint(out, self.result);
        if let Some(object) = self.object {
            put_varint(out, object.pool);
            put_varint(out, object.offset);
            put_varint(out, object.usable);
        }
    }

    /// Reads what [`encode`](CallReturn::encode) wrote.
    pub(crate) fn decode(input: &mut Input<'a>) -> Result<CallReturn<'a>, Defect> {
        let has_object = input.byte()? != 0;
        let name = input.text(MAX_TEXT)?;
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = input.varint()?;
        }
        let result = input.varint()?;
        let object = match has_object {
            true => Some(PmemObject {
                pool: input.varint()?,
                offset: input.varint()?,
                usable: input.varint()?,
            }),
            false => None,
        };
        Ok(CallReturn {
            name,
            arguments,
            result,
            object,
        })
    }
}

impl Display for CallReturn<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let [a, b, c, d, e, g] = self.arguments;
        let name = self.name.escape_debug();
        write!(
            f,
            "{name}({a:#x}, {b:#x}, {c:#x}, {d:#x}, {e:#x}, {g:#x}) = {:#x}",
            self.result
        )?;
        let Some(object) = self.object else { return Ok(()) };
        write!(f, " object {:#x}+{:#x}", object.pool, object.offset)?;
        match object.usable {
            0 => Ok(()),
            usable => write!(f, " len {usable}"),
        }
    }
}
