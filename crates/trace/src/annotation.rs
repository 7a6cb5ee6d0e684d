//! Annotations: statements that a program makes about itself by the macros of `crashproof.h`
//! (docs/annotations.md). The import of another tool's log turns that tool's statements into annotations too.

use std::fmt::{self, Display, Formatter};

use crate::format::{Defect, Input, MAX_TEXT, put_text, put_varint};

/// A range of the annotating process's memory. An analysis finds the PM that it is by the mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// Virtual address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A statement that a program makes about itself. It holds at the position of its event, for the event's
/// thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation<'a> {
    /// `CRASHPROOF_OP_BEGIN`: an operation of the thread begins.
    OperationBegin {
        /// Name that the program gives the operation.
        name: &'a str,
    },
    /// `CRASHPROOF_OP_END`: an operation of the thread ends. Everything that it stored is to be durable here.
    OperationEnd {
        /// Name that the program gives the operation.
        name: &'a str,
    },
    /// `CRASHPROOF_EXPECT_DURABLE`: the memory is durable now.
    ExpectDurable(MemoryRange),
    /// The thread's transaction covers the memory. Only imported traces have this; PMTest demands it of every
    /// store.
    ExpectSnapshotted(MemoryRange),
    /// `CRASHPROOF_EXPECT_ORDER`: at the next store to `after`, every earlier store to `before` is durable.
    ExpectOrder {
        /// The memory that has to be durable first.
        before: MemoryRange,
        /// The memory that is stored to later.
        after: MemoryRange,
        /// True only in imported traces, whose checkers look back: `before` is stored to only after `after`,
        /// so that the next store to `after` violates the expectation.
        backwards: bool,
    },
    /// A marker of an imported log that has a meaning only for the tool that wrote the log.
    Marker {
        /// The marker's text in the log, which ends in `.BEGIN` or `.END`.
        name: &'a str,
    },
}

/// The first byte of an annotation.
mod code {
    pub(super) const OPERATION_BEGIN: u8 = 0;
    pub(super) const OPERATION_END: u8 = 1;
    pub(super) const EXPECT_DURABLE: u8 = 2;
    pub(super) const EXPECT_SNAPSHOTTED: u8 = 3;
    pub(super) const EXPECT_ORDER: u8 = 4;
    pub(super) const EXPECT_ORDER_BACKWARDS: u8 = 5;
    pub(super) const MARKER: u8 = 6;
}

impl<'a> Annotation<'a> {
    /// Whether the annotation states an expectation about memory.
    pub(crate) fn is_expectation(&self) -> bool {
        match self {
            Annotation::ExpectDurable(_) | Annotation::ExpectSnapshotted(_) | Annotation::ExpectOrder { .. } => true,
            Annotation::OperationBegin { .. } | Annotation::OperationEnd { .. } | Annotation::Marker { .. } => false,
        }
    }

    /// The name of the macro, or a marker's own name.
    pub fn name(&self) -> &'a str {
        match *self {
            Annotation::OperationBegin { .. } => "CRASHPROOF_OP_BEGIN",
            Annotation::OperationEnd { .. } => "CRASHPROOF_OP_END",
            Annotation::ExpectDurable(_) => "CRASHPROOF_EXPECT_DURABLE",
            Annotation::ExpectSnapshotted(_) => "CRASHPROOF_EXPECT_SNAPSHOTTED",
            Annotation::ExpectOrder { .. } => "CRASHPROOF_EXPECT_ORDER",
            Annotation::Marker { name } => name,
        }
    }

    /// The annotation that a call stands for in format versions 1 to 3. There, annotations were calls of
    /// functions with the macros' names, followed by a blank and the name of an operation.
    pub(crate) fn of_call(name: &'a str, arguments: &[u64; 6]) -> Option<Annotation<'a>> {
        let [address, len, other_address, other_len, backwards, _] = *arguments;
        let memory = MemoryRange { address, len };
        let (word, rest) = name.split_once(' ').unwrap_or((name, ""));
        Some(match word {
            "CRASHPROOF_OP_BEGIN" => Annotation::OperationBegin { name: rest },
            "CRASHPROOF_OP_END" => Annotation::OperationEnd { name: rest },
            "CRASHPROOF_EXPECT_DURABLE" => Annotation::ExpectDurable(memory),
            "CRASHPROOF_EXPECT_SNAPSHOTTED" => Annotation::ExpectSnapshotted(memory),
            "CRASHPROOF_EXPECT_ORDER" => Annotation::ExpectOrder {
                before: memory,
                after: MemoryRange {
                    address: other_address,
                    len: other_len,
                },
                backwards: backwards != 0,
            },
            // No function has a dot in its name.
            _ if name.ends_with(".BEGIN") || name.ends_with(".END") => Annotation::Marker { name },
            _ => return None,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        fn put_range(out: &mut Vec<u8>, range: MemoryRange) {
            put_varint(out, range.address);
            put_varint(out, range.len);
        }
        let mut named = |code, name| {
            out.push(code);
            put_text(out, name);
        };
        match *self {
            Annotation::OperationBegin { name } => named(code::OPERATION_BEGIN, name),
            Annotation::OperationEnd { name } => named(code::OPERATION_END, name),
            Annotation::Marker { name } => named(code::MARKER, name),
            Annotation::ExpectDurable(range) => {
                out.push(code::EXPECT_DURABLE);
                put_range(out, range);
            }
            Annotation::ExpectSnapshotted(range) => {
                out.push(code::EXPECT_SNAPSHOTTED);
                put_range(out, range);
            }
            Annotation::ExpectOrder {
                before,
                after,
                backwards,
            } => {
                out.push(match backwards {
                    true => code::EXPECT_ORDER_BACKWARDS,
                    false => code::EXPECT_ORDER,
                });
                put_range(out, before);
                put_range(out, after);
            }
        }
    }

    /// Reads what [`encode`](Annotation::encode) wrote.
    pub(crate) fn decode(input: &mut Input<'a>) -> Result<Annotation<'a>, Defect> {
        fn range(input: &mut Input<'_>) -> Result<MemoryRange, Defect> {
            Ok(MemoryRange {
                address: input.varint()?,
                len: input.varint()?,
            })
        }
        Ok(match input.byte()? {
            code::OPERATION_BEGIN => Annotation::OperationBegin {
                name: input.text(MAX_TEXT)?,
            },
            code::OPERATION_END => Annotation::OperationEnd {
                name: input.text(MAX_TEXT)?,
            },
            code::EXPECT_DURABLE => Annotation::ExpectDurable(range(input)?),
            code::EXPECT_SNAPSHOTTED => Annotation::ExpectSnapshotted(range(input)?),
            order @ (code::EXPECT_ORDER | code::EXPECT_ORDER_BACKWARDS) => Annotation::ExpectOrder {
                before: range(input)?,
                after: range(input)?,
                backwards: order == code::EXPECT_ORDER_BACKWARDS,
            },
            code::MARKER => Annotation::Marker {
                name: input.text(MAX_TEXT)?,
            },
            _ => return Err("an unknown annotation"),
        })
    }
}

/// The annotation as it stands in the program's source, with numbers for arguments.
impl Display for Annotation<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{}", self.name().escape_debug())?;
        match self {
            Annotation::OperationBegin { name } | Annotation::OperationEnd { name } => {
                write!(f, "({})", name.escape_debug())
            }
            Annotation::ExpectDurable(range) | Annotation::ExpectSnapshotted(range) => {
                write!(f, "({:#x}, {})", range.address, range.len)
            }
            Annotation::ExpectOrder {
                before,
                after,
                backwards,
            } => {
                let how = if *backwards { ", backwards" } else { "" };
                let (first, second) = (before.address, after.address);
                write!(f, "({first:#x}, {}, {second:#x}, {}{how})", before.len, after.len)
            }
            Annotation::Marker { .. } => Ok(()),
        }
    }
}
