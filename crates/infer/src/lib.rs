//! Likely-correctness conditions (Witcher, SOSP 2021, sections 3.1.1 and 4.2): which orders and atomicities of persistence a program
//! relies on, by what its own code does. A trace recorded with dependences (`crashproof cc --deps`) says for every access to PM which
//! earlier loads decided that it happened (control) and gave its value or address (data); [`Conditions::infer`] turns these into
//! conditions, [`Listing`] into words.
//!
//! | rule | hint | condition | what a test persists, and what not |
//! |---|---|---|---|
//! | PO1 | a write of Y is data dependent on a read of X | X persists before Y | Y, not X |
//! | PO2 | a write of Y is control dependent on a read of X | X persists before Y | Y, not X |
//! | PO3 | a read of Y is control dependent on a read of X | Y persists before X | X, not Y |
//! | PO4 | the address of a read of Y comes from a read of X | Y persists before X | X, not Y |
//! | PA1 | X and Y both guard something | X and Y persist together | one, not the other |
//!
//! Where this is more than the paper:
//! - A location is a range of bytes within an 8-byte word, as some access had it; neighbours are never merged, because two tokens in a
//!   word are two tokens.
//! - The trace joins *nearest* accesses only, so PO3 is closed here, over the reader's side ([`closure`]): the value that is read if
//!   the key matches, which is read if the token is set, must persist before the token, too.
//! - PO4 is ours: a node before the pointer that publishes it.
//! - Guardians (PA1) are also what PO1 and PO2 read; the paper's are those of PO3 alone. They are a set, not pairs.
//! - Every condition is lifted to type and field where the site tables know them ([`lift`]), so that what one node teaches is
//!   tested on all.
//!
//! Architecture invariant: reads traces, and knows neither crash states nor how anything is tested.
#![forbid(unsafe_code)]

mod closure;
mod conditions;
mod fields;
mod lift;
mod listing;
mod location;
mod names;
mod operations;
#[cfg(test)]
mod tests;
mod words;

pub use closure::DEPTH;
pub use conditions::{Conditions, Guardian, InferError, Order, Rule};
pub use fields::{Field, FieldIndex, Fields, Level};
pub use lift::{Lifted, Lifting, Support};
pub use listing::{Because, Busy, Listed, Listing, Side};
pub use location::{Location, LocationId, split};
pub use names::Names;
pub use operations::{ByOperation, Operation, Written, operations};
