//! One record of the log as text.

/// Bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub address: u64,
    pub size: u64,
}

impl From<Memory> for crashproof_trace::MemoryRange {
    fn from(memory: Memory) -> Self {
        crashproof_trace::MemoryRange {
            address: memory.address,
            len: memory.size,
        }
    }
}

impl Memory {
    pub fn end(self) -> u64 {
        self.address.saturating_add(self.size)
    }

    pub fn intersects(self, other: Memory) -> bool {
        self.address < other.end() && other.address < self.end()
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Store(Memory),
    Flush(Memory),
    Fence,
    IsPersist(Memory),
    IsOrderedBefore(Memory, Memory),
    TransactionBegin,
    TransactionEnd,
    TransactionAdd(Memory),
    Exclude(Memory),
    Include(Memory),
}

impl Operation {
    /// The memory that it speaks of.
    pub(super) fn memory(self) -> impl Iterator<Item = Memory> {
        let (first, second) = match self {
            Operation::Store(memory)
            | Operation::Flush(memory)
            | Operation::IsPersist(memory)
            | Operation::TransactionAdd(memory)
            | Operation::Exclude(memory)
            | Operation::Include(memory) => (Some(memory), None),
            Operation::IsOrderedBefore(first, second) => (Some(first), Some(second)),
            Operation::Fence | Operation::TransactionBegin | Operation::TransactionEnd => (None, None),
        };
        first.into_iter().chain(second)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub operation: Operation,
    pub file: &'a str,
    pub line: u32,
}

/// No real program tells PMTest of more at once; a damaged log does.
const MAX_SIZE: u64 = 1 << 30;
/// What user programs can have.
const MAX_ADDRESS: u64 = 1 << 57;

/// Names, with how many ranges follow.
const NAMES: [(&str, usize); 10] = [
    ("_ASSIGN", 1),
    ("_FLUSH", 1),
    ("_FENCE", 0),
    ("_PERSIST", 1),
    ("_ORDER", 2),
    ("_TRANSACTIONBEGIN", 0),
    ("_TRANSACTIONEND", 0),
    ("_TRANSACTIONADD", 1),
    ("_EXCLUDE", 1),
    ("_INCLUDE", 1),
];

impl<'a> Record<'a> {
    /// The record of a line of output, or what is wrong with it; `None` if there is none. It may stand behind what the program
    /// has printed without an end of line, if it is whole.
    pub(super) fn find(line: &'a str) -> Option<Result<Record<'a>, String>> {
        let known = |text: &str| {
            let name = text.split(' ').next().unwrap_or_default();
            NAMES.into_iter().find(|(known, _)| *known == name)
        };
        if let Some((name, ranges)) = known(line) {
            return Some(Record::parse(name, ranges, line));
        }
        line.match_indices('_').find_map(|(at, _)| {
            let text = &line[at..];
            let (name, ranges) = known(text)?;
            Record::parse(name, ranges, text).ok().map(Ok)
        })
    }

    fn parse(name: &str, ranges: usize, text: &'a str) -> Result<Record<'a>, String> {
        let form = || match ranges {
            0 => format!("{name} FILE LINE"),
            1 => format!("{name} ADDRESS SIZE FILE LINE"),
            _ => format!("{name} ADDRESS SIZE ADDRESS SIZE FILE LINE"),
        };
        let fields = 1 + 2 * ranges;
        let mut parts = text.splitn(fields + 1, ' ').skip(1);
        let mut memory = [Memory { address: 0, size: 0 }; 2];
        for memory in &mut memory[..ranges] {
            let (Some(address), Some(size)) = (parts.next(), parts.next()) else {
                return Err(format!("the record ends early; it is {}", form()));
            };
            *memory = Memory {
                address: self::address(address)?,
                size: self::size(size)?,
            };
            if memory.end() > MAX_ADDRESS {
                return Err(format!("{} bytes at {address} are no memory of a program", memory.size));
            }
        }
        // A file may have spaces in its name.
        let Some((file, line)) = parts.next().and_then(|place| place.rsplit_once(' ')) else {
            return Err(format!("the record has no source line; it is {}", form()));
        };
        let line = line
            .parse()
            .map_err(|_| format!("the source line {line:?} is not a number; the record is {}", form()))?;
        let [first, second] = memory;
        let operation = match name {
            "_ASSIGN" => Operation::Store(first),
            "_FLUSH" => Operation::Flush(first),
            "_FENCE" => Operation::Fence,
            "_PERSIST" => Operation::IsPersist(first),
            "_ORDER" => Operation::IsOrderedBefore(first, second),
            "_TRANSACTIONBEGIN" => Operation::TransactionBegin,
            "_TRANSACTIONEND" => Operation::TransactionEnd,
            "_TRANSACTIONADD" => Operation::TransactionAdd(first),
            "_EXCLUDE" => Operation::Exclude(first),
            _ => Operation::Include(first),
        };
        Ok(Record { operation, file, line })
    }
}

/// As `%p` prints it.
fn address(text: &str) -> Result<u64, String> {
    let wrong = || format!("the address {text:?} is not 0x and at most 16 hexadecimal digits");
    match text {
        "(nil)" => Ok(0),
        _ => {
            let digits = text.strip_prefix("0x").ok_or_else(wrong)?;
            u64::from_str_radix(digits, 16).map_err(|_| wrong())
        }
    }
}

/// PMTest leaves out what has no bytes, and prints its unsigned sizes with `%d`.
fn size(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(size @ 1..) if size.unsigned_abs() <= MAX_SIZE => Ok(size.unsigned_abs()),
        Ok(_) => Err(format!("the size {text} is not between 1 and {MAX_SIZE}")),
        Err(_) => Err(format!("the size {text:?} is not a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_as_pmtest_prints_them() {
        let record = |line| Record::find(line).unwrap().unwrap();
        let store = Operation::Store(Memory {
            address: 0x7f40,
            size: 8,
        });
        let found = record("_ASSIGN 0x7f40 8 src/my log.c 31");
        assert_eq!((found.operation, found.file, found.line), (store, "src/my log.c", 31));
        let order = record("_ORDER 0x40 8 (nil) 64 a.c 7").operation;
        let memory = |address, size| Memory { address, size };
        assert_eq!(order, Operation::IsOrderedBefore(memory(0x40, 8), memory(0, 64)));
        assert_eq!(record("_FENCE a.c 8").operation, Operation::Fence);
        assert_eq!(record("_TRANSACTIONEND a.c 8").operation, Operation::TransactionEnd);
        // Behind what the program printed.
        assert_eq!(record("50 % done_ASSIGN 0x7f40 8 a.c 31").operation, store);
        for other in [
            "",
            "done",
            "Unidentified or unprocessed type.",
            "_COMMIT a.c 8",
            "my_FENCE",
            "\u{1b}[31mPERSIST ERROR: \u{1b}[0ma.c:40: Address range [0x40, 0x48) not persisted.",
        ] {
            assert_eq!(Record::find(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, word) in [
            ("_ASSIGN", "ends early"),
            ("_ASSIGN 0x40", "ends early"),
            ("_ASSIGN 40 8 a.c 1", "address \"40\""),
            ("_ASSIGN 0x40 x a.c 1", "size \"x\""),
            ("_ASSIGN 0x40 0 a.c 1", "between 1"),
            ("_FLUSH 0x40 -5 a.c 1", "between 1"),
            ("_FLUSH 0x40 1073741825 a.c 1", "between 1"),
            ("_PERSIST 0xffffffffffffffff 8 a.c 1", "no memory"),
            ("_ORDER 0x40 8 a.c 1", "address \"a.c\""),
            ("_EXCLUDE 0x40 8", "no source line"),
            ("_FENCE a.c", "no source line"),
            ("_FENCE a.c x", "source line \"x\""),
        ] {
            let error = Record::find(text).unwrap().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
