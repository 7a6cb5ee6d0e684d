//! Which operation of a driver an event belongs to: what Witcher (SOSP 2021, sections 4.2 to 4.4) gets from a template that marks
//! operations. Here nothing has to be marked: the drivers of `crash --oracle output` print one line for each operation, so an
//! operation ends with the output on descriptor 1 that completes its line. Where the trace has the annotations
//! `CRASHPROOF_OP_BEGIN` and `CRASHPROOF_OP_END`, these decide, and lines mean nothing.
//!
//! Operations are numbered from 0, in the order in which they begin. What lies between two of them belongs to the one that comes
//! next: a crash there finds it not begun, which is one of the two ways in which a crash may leave it. What comes after the last has the number
//! of the one that would follow.

use std::collections::BTreeMap;

use crate::annotation::Annotation;
use crate::event::{Event, EventKind, ThreadId};

const STDOUT: u32 = 1;

/// What ends an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundaries {
    /// A line on descriptor 1. What comes before the first line is of operation 0.
    Lines,
    /// `CRASHPROOF_OP_END`. What comes before the first `CRASHPROOF_OP_BEGIN` is set-up.
    Annotations,
}

impl Boundaries {
    /// What the event shows: the first line of output, or the first annotation before it, decides.
    pub(crate) fn shown_by(event: &Event<'_>) -> Option<Boundaries> {
        if lines(event) > 0 {
            Some(Boundaries::Lines)
        } else {
            edge(event).map(|_| Boundaries::Annotations)
        }
    }
}

/// Is shown every event, in order, and says of each which operation it belongs to.
#[derive(Clone, Debug)]
pub struct Operations {
    boundaries: Boundaries,
    /// With lines: that ended.
    begun: u64,
    /// Annotated ones that have not ended, with how many begin within them: those are parts of them.
    open: BTreeMap<ThreadId, (u64, u32)>,
}

impl Operations {
    pub fn new(boundaries: Boundaries) -> Operations {
        Operations {
            boundaries,
            begun: 0,
            open: BTreeMap::new(),
        }
    }

    /// The operation that the event belongs to; none in the set-up. The event that ends an operation is its last one, the annotation
    /// that begins it its first.
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

    /// What belongs to no open operation belongs to the next one.
    fn next(&self) -> Option<u64> {
        (self.begun > 0).then_some(self.begun)
    }

    /// Annotated operations that have begun and not ended, of all threads. With lines nothing says when one begins, so there are none.
    pub fn open(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.values().map(|&(operation, _)| operation)
    }

    /// With lines: how many operations have ended. With annotations: how many have begun.
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

/// Lines that the event completes.
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
            begun: 0,
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
