//! The operation trace of PMTest (Liu et al., ASPLOS 2019), as its library prints it on stdout when it was built by `make debug`.
//!
//! One record a line: a name, then fields that are separated by spaces. Addresses are as `%p` prints them, sizes decimal; FILE and
//! LINE are those of the annotated source, FILE at most the last 48 bytes of its path (without an end if there are more, so that
//! other bytes may follow).
//!
//! | record | |
//! |---|---|
//! | `_ASSIGN ADDRESS SIZE FILE LINE` | a store; its value is not known |
//! | `_FLUSH ADDRESS SIZE FILE LINE` | |
//! | `_FENCE FILE LINE` | |
//! | `_PERSIST ADDRESS SIZE FILE LINE` | the checker `isPersist`; also one for each store of a transaction, when it ends |
//! | `_ORDER ADDRESS SIZE ADDRESS SIZE FILE LINE` | the checker `isOrderedBefore` |
//! | `_TRANSACTIONBEGIN FILE LINE`, `_TRANSACTIONEND FILE LINE` | |
//! | `_TRANSACTIONADD ADDRESS SIZE FILE LINE` | |
//! | `_EXCLUDE ADDRESS SIZE FILE LINE`, `_INCLUDE ADDRESS SIZE FILE LINE` | |
//!
//! What else the program and PMTest print in between is passed over. (From PMTest's sources and from logs of programs of our own.)

mod import;
mod record;

pub use import::{ImportError, Imported, Unordered, import};
