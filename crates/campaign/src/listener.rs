//! Who is told what happens while a campaign runs.

use std::fmt::Display;

use crashproof_crash::Progress;

pub trait Listener: Sync {
    fn note(&self, text: &dyn Display);

    fn warning(&self, text: &dyn Display);

    /// Something went wrong that the campaign goes on after.
    fn error(&self, text: &dyn Display);

    /// States are being tested from now on: how far it is goes to what this returns, which is dropped when they are.
    fn testing(&self) -> Box<dyn FnMut(&Progress) + Send>;
}
