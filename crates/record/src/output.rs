//! The trace being written. A trace that cannot be written any more (full disk) does not stop the recording: the program
//! goes on, the verification too, and the failure is kept for the end.

use std::path::Path;

use crashproof_trace::{
    EventKind, FileId, Frame, Header, Incomplete, IncompleteReason, LeftOut, Module, ModuleId, PmAddress, PmFile,
    ProgramEnd, StackId, ThreadId, TraceWriter, WriteError,
};

pub(crate) struct Output {
    writer: TraceWriter,
    failure: Option<WriteError>,
    incomplete: Vec<Incomplete>,
    /// What helps if there is no room.
    remedy: &'static str,
}

/// What came of the trace.
pub(crate) struct Written {
    pub failure: Option<WriteError>,
    /// Why the trace does not hold everything.
    pub incomplete: Vec<Incomplete>,
}

impl Output {
    pub(crate) fn create(path: &Path, header: &Header, remedy: &'static str) -> Result<Output, WriteError> {
        let writer = TraceWriter::create(path, header)?;
        Ok(Output {
            writer,
            failure: None,
            incomplete: Vec::new(),
            remedy,
        })
    }

    /// Events so far.
    pub(crate) fn events(&self) -> u64 {
        self.writer.events()
    }

    pub(crate) fn event(&mut self, thread: ThreadId, stack: StackId, kind: &EventKind<'_>) {
        self.event_begun(self.events(), thread, stack, kind);
    }

    /// A sync or an operation on a file begins.
    pub(crate) fn begin(&mut self, thread: ThreadId) {
        if self.failure.is_none()
            && let Err(error) = self.writer.begin(thread)
        {
            self.refused(error);
        }
    }

    /// One that began when there were `begun` events.
    pub(crate) fn event_begun(&mut self, begun: u64, thread: ThreadId, stack: StackId, kind: &EventKind<'_>) {
        if self.failure.is_none()
            && let Err(error) = self.writer.event_begun(begun, thread, stack, kind)
        {
            self.refused(error);
        }
    }

    pub(crate) fn initial(&mut self, at: PmAddress, data: &[u8]) {
        if self.failure.is_none()
            && let Err(error) = self.writer.initial(at, data)
        {
            self.refused(error);
        }
    }

    pub(crate) fn module(&mut self, module: &Module) -> Option<ModuleId> {
        self.writer.module(module).map_err(|error| self.refused(error)).ok()
    }

    pub(crate) fn stack(&mut self, frames: &[Frame]) -> StackId {
        self.writer.stack(frames).unwrap_or_else(|error| {
            self.refused(error);
            StackId(0)
        })
    }

    pub(crate) fn file(&mut self, file: &PmFile) -> FileId {
        self.writer.file(file).unwrap_or_else(|error| {
            self.refused(error);
            // No event with it gets into the trace.
            FileId(u32::MAX)
        })
    }

    /// Something that the trace does not hold. Each is said once.
    pub(crate) fn incomplete(&mut self, reason: IncompleteReason, detail: String) {
        let incomplete = Incomplete { reason, detail };
        if self.incomplete.contains(&incomplete) {
            return;
        }
        if let Err(error) = self.writer.incomplete(&incomplete) {
            self.refused(error);
        }
        self.incomplete.push(incomplete);
    }

    /// A file of which the trace has no events.
    pub(crate) fn left_out(&mut self, left_out: &LeftOut) {
        if self.failure.is_none()
            && let Err(error) = self.writer.left_out(left_out)
        {
            self.refused(error);
        }
    }

    /// Makes what was recorded so far safe from the recorder's death.
    pub(crate) fn flush(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.writer.flush()
        {
            self.refused(error);
        }
    }

    pub(crate) fn finish(mut self, end: ProgramEnd) -> Written {
        let finished = self.writer.finish(end);
        let failure = self.failure.or(finished.err());
        if let Some(failure) = &failure {
            let detail = format!("{failure}; {}", self.remedy);
            self.incomplete.push(Incomplete {
                reason: IncompleteReason::WriteFailed,
                detail,
            });
        }
        Written {
            failure,
            incomplete: self.incomplete,
        }
    }

    #[cold]
    fn refused(&mut self, error: WriteError) {
        match error {
            WriteError::Invalid { what, .. } => {
                let incomplete = Incomplete {
                    reason: IncompleteReason::Lost,
                    detail: format!("an event was not understood ({what}): the program may have overwritten it"),
                };
                if !self.incomplete.contains(&incomplete) {
                    self.failure = self.writer.incomplete(&incomplete).err();
                    self.incomplete.push(incomplete);
                }
            }
            WriteError::AlreadyFailed { .. } if self.failure.is_some() => {}
            error => self.failure = Some(error),
        }
    }
}
