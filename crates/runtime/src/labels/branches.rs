//! What a thread keeps: its open branches, and the labels that cross a call.
//!
//! A branch is open until the block is entered that post-dominates it, or its frame ends (the stack of Xin and Zhang's online detection of control
//! dependence). Frames are counted by the functions built with `--deps`; an exception or a `longjmp` that skips some is noticed by the number of
//! the frame in which the program goes on.

use super::domain::{Domain, EMPTY, Label};
use crashproof_wire::labels::MOST_ARGUMENTS;

struct Open {
    frame: u64,
    branch: u64,
    /// Where it is closed.
    block: u64,
    label: Label,
}

#[derive(Default)]
pub(crate) struct Thread {
    /// Of the thread whose this is: memory of ended threads is used again.
    os_id: u32,
    frame: u64,
    open: Vec<Open>,
    arguments: [Label; MOST_ARGUMENTS],
    /// Who they are for; 0: nobody. Code that nobody labelled may call back, and its callee must not take them for its own.
    callee: u64,
    result: Label,
    /// Whose result it is.
    returned: u64,
    /// Of what was loaded from PM and is about to be copied.
    pub source: Option<Label>,
    /// Annotated operations that have begun and not ended.
    pub operations: u32,
}

impl Thread {
    /// The state of the thread `os_id`, new if it was another's.
    pub(crate) fn of(&mut self, os_id: u32) -> &mut Thread {
        if self.os_id != os_id {
            self.open.clear();
            (self.os_id, self.frame, self.callee, self.returned, self.operations) = (os_id, 0, 0, 0, 0);
        }
        self
    }

    pub(crate) fn enter(&mut self, function: u64) -> u64 {
        if self.callee != function {
            self.arguments = [EMPTY; MOST_ARGUMENTS];
        }
        self.callee = 0;
        self.frame += 1;
        self.frame
    }

    pub(crate) fn argument(&self, index: u64) -> Label {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.arguments.get(index))
            .copied()
            .unwrap_or(EMPTY)
    }

    pub(crate) fn call(&mut self, callee: u64, arguments: u64) {
        let passed = (arguments as usize).min(MOST_ARGUMENTS);
        self.arguments[..passed].fill(EMPTY);
        self.callee = callee;
        self.returned = 0;
    }

    pub(crate) fn pass(&mut self, index: u64, label: Label) {
        if let Some(argument) = self.arguments.get_mut(index as usize) {
            *argument = label;
        }
    }

    pub(crate) fn result(&mut self, callee: u64) -> Label {
        self.callee = 0;
        match std::mem::take(&mut self.returned) == callee {
            true => self.result,
            false => EMPTY,
        }
    }

    /// The branches that the return closes give their labels to what is returned.
    pub(crate) fn leave(&mut self, domain: &mut impl Domain, frame: u64, function: u64, label: Label) {
        let closed = self.close(domain, frame, |_| true);
        self.result = domain.combine(0, label, closed);
        self.returned = function;
        self.frame = frame.saturating_sub(1);
    }

    /// A loop's branch replaces its previous instance.
    pub(crate) fn branch(&mut self, domain: &impl Domain, frame: u64, branch: u64, block: u64, label: Label) {
        self.back_in(frame);
        let own = self.own(frame);
        if let Some(previous) = self.open[own..].iter().position(|open| open.branch == branch) {
            self.open.remove(own + previous);
        }
        if domain.is_live(label) {
            self.open.push(Open {
                frame,
                branch,
                block,
                label,
            });
        }
    }

    pub(crate) fn join(&mut self, domain: &mut impl Domain, frame: u64, block: u64) -> Label {
        self.close(domain, frame, |open| open.block == block)
    }

    pub(crate) fn depth(&mut self, frame: u64) -> u64 {
        self.back_in(frame);
        (self.open.len() - self.own(frame)) as u64
    }

    pub(crate) fn restore(&mut self, frame: u64, depth: u64) {
        self.back_in(frame);
        let own = self.own(frame) as u64;
        self.open.truncate(own.saturating_add(depth) as usize);
    }

    /// The label of the nearest open branch that has one.
    pub(crate) fn nearest(&self, domain: &impl Domain) -> Label {
        let labels = self.open.iter().rev().map(|open| open.label);
        labels.into_iter().find(|&label| domain.is_live(label)).unwrap_or(EMPTY)
    }

    fn close(&mut self, domain: &mut impl Domain, frame: u64, closes: impl Fn(&Open) -> bool) -> Label {
        self.back_in(frame);
        let own = self.own(frame);
        let mut labels = EMPTY;
        let mut at = own;
        while at < self.open.len() {
            if closes(&self.open[at]) {
                let control = domain.control(self.open.remove(at).label);
                labels = domain.combine(0, labels, control);
            } else {
                at += 1;
            }
        }
        labels
    }

    /// Frames above have ended, in whichever way.
    fn back_in(&mut self, frame: u64) {
        self.frame = frame;
        while self.open.last().is_some_and(|open| open.frame > frame) {
            self.open.pop();
        }
    }

    /// Where the branches of the frame on top begin.
    fn own(&self, frame: u64) -> usize {
        let own = self.open.iter().rev().take_while(|open| open.frame == frame).count();
        self.open.len() - own
    }
}

#[cfg(test)]
mod tests {
    use super::super::domain::Sets;
    use super::*;

    #[test]
    fn branches_close_where_they_join_and_with_their_frames() {
        let (mut sets, mut thread) = (Sets::default(), Thread::default());
        let [a, b, c] = [1, 2, 3].map(|node| sets.load(node));
        let outer = thread.enter(10);
        thread.branch(&sets, outer, 0, 7, a);
        thread.branch(&sets, outer, 1, 8, b);
        assert_eq!(thread.nearest(&sets), b);
        // The loop's branch again, with nothing known of its condition.
        thread.branch(&sets, outer, 1, 8, EMPTY);
        assert_eq!(thread.nearest(&sets), a);
        thread.branch(&sets, outer, 1, 8, b);
        let inner = thread.enter(20);
        assert_eq!(thread.nearest(&sets), b);
        thread.branch(&sets, inner, 0, 7, c);
        assert_eq!(thread.nearest(&sets), c);
        thread.leave(&mut sets, inner, 20, EMPTY);
        let result = thread.result(20);
        assert_eq!(sets.members(result), [7]);
        let closed = thread.join(&mut sets, outer, 8);
        assert_eq!(sets.members(closed), [5]);
        assert_eq!(thread.nearest(&sets), a);
    }

    #[test]
    fn labels_of_a_call_are_for_its_callee_only() {
        let (mut sets, mut thread) = (Sets::default(), Thread::default());
        let a = sets.load(1);
        thread.call(10, 2);
        thread.pass(1, a);
        thread.enter(10);
        assert_eq!([thread.argument(0), thread.argument(1)], [EMPTY, a]);
        thread.call(30, 1);
        thread.pass(0, a);
        // 30 is not labelled, and calls back.
        let callback = thread.enter(40);
        assert_eq!(thread.argument(0), EMPTY);
        thread.leave(&mut sets, callback, 40, a);
        assert_eq!(thread.result(30), EMPTY);
    }

    #[test]
    fn frames_that_were_skipped_are_forgotten() {
        let (mut sets, mut thread) = (Sets::default(), Thread::default());
        let [a, b] = [1, 2].map(|node| sets.load(node));
        let outer = thread.enter(10);
        thread.branch(&sets, outer, 0, 7, a);
        let depth = thread.depth(outer);
        thread.branch(&sets, outer, 1, 7, b);
        let inner = thread.enter(20);
        thread.branch(&sets, inner, 0, 7, b);
        thread.restore(outer, depth);
        assert_eq!(thread.nearest(&sets), a);
        assert_eq!(thread.enter(20), inner);
    }
}
