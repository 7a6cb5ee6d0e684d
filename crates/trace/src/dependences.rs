//! The dependences of an access to PM on earlier loads. An event has them either as a slice that the recorder
//! gave, or encoded in the bytes of the trace.

use std::fmt::{self, Debug, Formatter};

use crate::format::{Defect, Input, MAX_DEPENDENCES, put_varint};

/// A dependence of an access on the value that an earlier load read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dependence {
    /// Node of the earlier load ([`EventKind::Access`](crate::EventKind::Access)).
    pub node: u64,
    /// True if the value decided whether the access happened; false if the access's address or value was
    /// computed from it.
    pub control: bool,
}

/// All dependences of an access, in the order in which the recorder gave them.
///
/// ```
/// # use crashproof_trace::{Dependence, Dependences};
/// let given = [Dependence { node: 3, control: true }];
/// assert_eq!(Dependences::of(&given).iter().next(), Some(given[0]));
/// ```
#[derive(Clone, Copy)]
pub struct Dependences<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    Given(&'a [Dependence]),
    /// The bytes that [`encode`](Dependences::encode) wrote, checked.
    Encoded {
        node: u64,
        count: usize,
        bytes: &'a [u8],
    },
}

impl<'a> Dependences<'a> {
    /// The dependences in a slice.
    pub fn of(dependences: &'a [Dependence]) -> Dependences<'a> {
        Dependences(Form::Given(dependences))
    }

    /// Number of dependences.
    pub fn len(&self) -> usize {
        match self.0 {
            Form::Given(given) => given.len(),
            Form::Encoded { count, .. } => count,
        }
    }

    /// Whether the access depends on no load.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dependences, in order.
    pub fn iter(&self) -> impl Iterator<Item = Dependence> + 'a {
        let form = self.0;
        let mut input = Input {
            data: match form {
                Form::Given(_) => &[],
                Form::Encoded { bytes, .. } => bytes,
            },
            at: 0,
        };
        (0..self.len()).map_while(move |index| match form {
            Form::Given(given) => Some(given[index]),
            Form::Encoded { node, .. } => take(&mut input, node).ok(),
        })
    }

    /// Fails if an access with the number `node` cannot have these dependences. Nodes are below 2⁶³, so that
    /// a bit for control dependence fits beside them.
    pub(crate) fn check(&self, node: u64) -> Result<(), Defect> {
        if node >> 63 != 0 {
            return Err("the number of an access is out of bounds");
        }
        if self.len() > MAX_DEPENDENCES {
            return Err("an access has too many dependences");
        }
        if self.iter().any(|dependence| dependence.node >= node) {
            return Err("an access depends on a later one");
        }
        Ok(())
    }

    /// Appends the dependences to `out`, each as its distance from the access `node`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, node: u64) {
        put_varint(out, self.len() as u64);
        for dependence in self.iter() {
            put_varint(out, (node - dependence.node) << 1 | dependence.control as u64);
        }
    }

    /// Reads and checks what [`encode`](Dependences::encode) wrote.
    pub(crate) fn decode(input: &mut Input<'a>, node: u64) -> Result<Dependences<'a>, Defect> {
        let count = input.varint()?;
        if count > MAX_DEPENDENCES as u64 {
            return Err("an access has too many dependences");
        }
        let start = input.at;
        for _ in 0..count {
            take(input, node)?;
        }
        Ok(Dependences(Form::Encoded {
            node,
            count: count as usize,
            bytes: &input.data[start..input.at],
        }))
    }
}

#[inline]
fn take(input: &mut Input, node: u64) -> Result<Dependence, Defect> {
    let coded = input.varint()?;
    let distance = coded >> 1;
    if distance == 0 || distance > node {
        return Err("an access depends on one that is not before it");
    }
    Ok(Dependence {
        node: node - distance,
        control: coded & 1 != 0,
    })
}

impl Debug for Dependences<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for Dependences<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Dependences<'_> {}
