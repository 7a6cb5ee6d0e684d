//! The operations of a driver, and the events that belong to each. Witcher (SOSP 2021, sections 4.2 to 4.4)
//! has a template that marks operations. Here nothing has to be marked. The drivers of `crash --oracle
//! output` print one line for each operation, so an operation ends with the output on descriptor 1 that
//! completes its line. In a trace with the annotations `CRASHPROOF_OP_BEGIN` and `CRASHPROOF_OP_END`, the
//! annotations decide, and lines have no meaning.
//!
//! Operations are numbered from 0, in the order in which they begin. Events between two operations belong to
//! the next one. A crash there leaves that operation not begun, which is one of the two results that a crash
//! may have. Events after the last operation have the number of the operation that would follow.

use std::collections::BTreeMap;

use crate::annotation::Annotation;
use crate::event::{Event, EventKind, ThreadId};

const STDOUT: u32 = 1;

/// The kind of event that ends an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundaries {
    /// A complete line on descriptor 1. Events before the first line belong to operation 0.
    Lines,
    /// The annotation `CRASHPROOF_OP_END`. Events before the first `CRASHPROOF_OP_BEGIN` are the set-up.
    Annotations,
}

impl Boundaries {
    /// The boundaries that the event decides on, if it decides. The first line of output, or an annotation
    /// before it, decides for the whole trace.
    pub(crate) fn shown_by(event: &Event<'_>) -> Option<Boundaries> {
        if lines(event) > 0 {
            Some(Boundaries::Lines)
        } else {
            edge(event).map(|_| Boundaries::Annotations)
        }
    }
}

/// Finds the operation that each event belongs to, from all events in order.
#[derive(Clone, Debug)]
pub struct Operations {
    boundaries: Boundaries,
    /// With lines: number of operations that have ended. With annotations: number of operations that have
    /// begun.
    begun: u64,
    /// By thread, the annotated operation that has not ended, and the number of operations that have begun
    /// within it, which are parts of it.
    open: BTreeMap<ThreadId, (u64, u32)>,
}

impl Operations {
    /// Operations that end in this way, before the first event.
    pub fn new(boundaries: Boundaries) -> Operations {
        Operations {
            boundaries,
            begun: 0,
            open: BTreeMap::new(),
        }
    }

    /// The number of the operation that an event belongs to; `None` in the set-up. The events are given in
    /// order, all of them. The first event of an annotated operation is the annotation that begins it. The
    /// last event of an operation is the one that ends it.
    pub fn of(&mut self, event: &Event<'_>) -> Option<u64> {
        match self.boundaries {
            Boundaries::Lines => {
                let operation = self.begun;
                self.begun += lines(event);
                Some(operation)
            }
            Boundaries::Annotations => self.annotated(event),
        }
    }

    fn annotated(&mut self, event: &Event<'_>) -> Option<u64> {
        let thread = event.thread;
        match edge(event) {
            Some(Edge::Begin) => match self.open.get_mut(&thread) {
                Some((_, within)) => *within += 1,
                None => {
                    self.open.insert(thread, (self.begun, 0));
                    self.begun += 1;
                }
            },
            Some(Edge::End) => {
                return match self.open.get_mut(&thread) {
                    Some((operation, 0)) => {
                        let operation = *operation;
                        self.open.remove(&thread);
                        Some(operation)
                    }
                    Some((operation, within)) => {
                        *within -= 1;
                        Some(*operation)
                    }
                    None => self.next(),
                };
            }
            None => {}
        }
        self.open
            .get(&thread)
            .map(|&(operation, _)| operation)
            .or_else(|| self.next())
    }

    /// The operation of an event outside all open operations: the next one.
    fn next(&self) -> Option<u64> {
        (self.begun > 0).then_some(self.begun)
    }

    /// Numbers of the annotated operations of all threads that have begun and not ended. There are none with
    /// lines, which do not tell when an operation begins.
    pub fn open(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.values().map(|&(operation, _)| operation)
    }

    /// With lines: number of operations that have ended. With annotations: number of operations that have
    /// begun.
    pub fn count(&self) -> u64 {
        self.begun
    }
}

enum Edge {
    Begin,
    End,
}

fn edge(event: &Event<'_>) -> Option<Edge> {
    match event.kind {
        EventKind::Annotation(Annotation::OperationBegin { .. }) => Some(Edge::Begin),
        EventKind::Annotation(Annotation::OperationEnd { .. }) => Some(Edge::End),
        _ => None,
    }
}

/// Number of lines that the event completes.
fn lines(event: &Event<'_>) -> u64 {
    match event.kind {
        EventKind::Output { fd: STDOUT, data } => data.iter().filter(|&&byte| byte == b'\n').count() as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{FenceKind, StackId};

    fn event(thread: u32, kind: EventKind<'_>) -> Event<'_> {
        Event {
            seq: 0,
            beginning: &crate::event::AT_ONCE,
            thread: ThreadId(thread),
            stack: StackId(0),
            kind,
        }
    }

    fn fence(thread: u32) -> Event<'static> {
        let kind = FenceKind::Sfence;
        event(thread, EventKind::Fence { kind })
    }

    fn begin(thread: u32, name: &str) -> Event<'_> {
        event(thread, EventKind::Annotation(Annotation::OperationBegin { name }))
    }

    fn end(thread: u32, name: &str) -> Event<'_> {
        event(thread, EventKind::Annotation(Annotation::OperationEnd { name }))
    }

    fn output(fd: u32, text: &str) -> Event<'_> {
        let data = text.as_bytes();
        event(0, EventKind::Output { fd, data })
    }

    fn numbers<'a>(boundaries: Boundaries, events: impl IntoIterator<Item = Event<'a>>) -> Vec<Option<u64>> {
        let mut operations = Operations::new(boundaries);
        events.into_iter().map(|event| operations.of(&event)).collect()
    }

    #[test]
    fn a_complete_line_on_stdout_ends_an_operation() {
        let events = [
            fence(0),
            output(2, "warning\n"),
            output(1, "o"),
            output(1, "k\n"),
            fence(0),
            output(1, "ok\nok\n"),
            fence(0),
        ];
        let expected = [0, 0, 0, 0, 1, 1, 3].map(Some);
        assert_eq!(numbers(Boundaries::Lines, events), expected);
    }

    #[test]
    fn annotations_decide_where_there_are_any() {
        let events = [
            fence(0),
            begin(0, "put"),
            fence(0),
            end(0, "put"),
            output(1, "ok\n"),
            begin(0, "get"),
            output(1, "ok\n"),
            fence(0),
            end(0, "get"),
            fence(0),
        ];
        let expected = [
            None,
            Some(0),
            Some(0),
            Some(0),
            Some(1),
            Some(1),
            Some(1),
            Some(1),
            Some(1),
            Some(2),
        ];
        assert_eq!(numbers(Boundaries::Annotations, events), expected);
    }

    #[test]
    fn operations_within_operations_are_parts_of_them_and_threads_have_their_own() {
        let mut operations = Operations::new(Boundaries::Annotations);
        let mut of = |event: Event<'_>| operations.of(&event);
        assert_eq!(of(begin(0, "outer")), Some(0));
        assert_eq!(of(begin(0, "inner")), Some(0));
        assert_eq!(of(begin(1, "other")), Some(1));
        assert_eq!(of(end(0, "inner")), Some(0));
        assert_eq!(of(fence(0)), Some(0));
        assert_eq!(of(fence(1)), Some(1));
        assert_eq!(of(fence(2)), Some(2));
        assert_eq!(operations.open().collect::<Vec<_>>(), [0, 1]);
        let mut of = |event: Event<'_>| operations.of(&event);
        assert_eq!(of(end(0, "outer")), Some(0));
        assert_eq!(of(end(1, "other")), Some(1));
        assert_eq!(of(end(1, "nothing")), Some(2));
        assert_eq!(operations.open().count(), 0);
        assert_eq!(operations.count(), 2);
    }
}
