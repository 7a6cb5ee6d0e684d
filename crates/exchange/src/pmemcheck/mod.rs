//! The store log of pmemcheck (`valgrind --tool=pmemcheck --log-stores=yes`), which pmreorder reads.
//!
//! Records are separated by `|` and their fields by `;`; numbers are hexadecimal. The log stands in Valgrind's output, whose other
//! lines begin with `==PID==`.
//!
//! | record | |
//! |---|---|
//! | `START`, `STOP` | the log's first and last |
//! | `REGISTER_FILE;path;address;size;offset` | a file is mapped |
//! | `STORE;address;value;size[;frame]…` | at most eight bytes; frames innermost first, with `--log-stores-stacktraces=yes` |
//! | `FLUSH;address;size` | |
//! | `FENCE` | also for locked instructions |
//! | `DEEP_SYNC;address;size` | msync |
//! | `name.BEGIN`, `name.END` | markers that the program emits, for pmreorder |
//!
//! (From the documentation and the sources of pmemcheck and pmreorder.)

mod export;
mod import;
mod record;

pub use export::export;
pub use import::{ImportError, ImportOptions, Imported, import};
