//! What came of a run.

/// How the recovery is started for each state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Forked from a server that is parked at `main`.
    Parked,
    /// As a new process each time, for the reason given (in words for the user).
    Started(String),
}

/// How one command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub status: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    /// The first bytes of each, as many as [`Options::capture`](crate::Options::capture) says.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Ended {
    pub fn succeeded(&self) -> bool {
        self.status == Some(0) && !self.timed_out
    }
}

/// One run on one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub recovery: Ended,
    /// `None`: there is no checker, or the recovery failed.
    pub check: Option<Ended>,
    /// What the commands looked at, as units of `crashproof_wire::recovery`, in the order of the first touch. `None`: not
    /// tracked, or not all of it, so everything counts as read.
    pub touched: Option<Vec<u64>>,
    /// Whether the image was changed.
    pub wrote: bool,
    /// Nobody has opened the file that holds what the program had output, in this run or before, so it did not matter.
    pub output_unread: bool,
    /// Whether somebody has opened one of the PM files, in this run or before, or that cannot be known. `None`: none of them was there.
    pub looked: Option<bool>,
}
