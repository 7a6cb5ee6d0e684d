//! Phase 1: for each finding the simplest fix, in the function of the store or flush itself (sections 4.2.1 to 4.2.3).
//!
//! What `crashproof check` says is finer than pmemcheck: `missing-flush` names the first fence of the thread that passed the store by,
//! if there was one, and that fence is the M of theorem 2. It must serve all stores of that stack, though, and a finding shows
//! one: it does if it comes on every path, or if the trace says that each of them was followed by a fence. Otherwise the fix fences, too
//! (theorem 3), which is always safe.
//!
//! A missing fence goes after the flush, in the function that holds both store and flush: in a loop over lines within a function
//! `flush_range` it would be executed for each line, and for everything that anyone flushes.

use crashproof_finding::{DurableBy, DurableByKind, Finding, Frame, Kind};
use crashproof_llvm::Value;

use super::fences::Paths;
use super::{Left, Planner};
use crate::ir::Code;
use crate::locate::{Stack, Wanted};

/// What a finding needs.
#[derive(Clone, Debug)]
pub(super) struct Need<'m> {
    /// Index; none if no finding but the trace shows it.
    pub finding: Option<usize>,
    pub what: What<'m>,
    /// The calls of its stack, innermost first, as far as they are known.
    pub stack_calls: Vec<Value<'m>>,
    /// So many of them lie below the function that holds `durable_by`, or in it and lead to the store alone.
    pub calls: usize,
}

#[derive(Clone, Debug)]
pub(super) enum What<'m> {
    Flush { stores: Vec<Value<'m>>, fence: bool },
    Fence { after: Value<'m> },
}

impl<'m> Need<'m> {
    /// The function that a call of the stack called.
    pub(super) fn callee(&self, call: usize) -> Option<Value<'m>> {
        let inner = match (call.checked_sub(1), &self.what) {
            (Some(inner), _) => self.stack_calls.get(inner),
            (None, What::Flush { stores, .. }) => stores.first(),
            (None, What::Fence { after }) => Some(after),
        };
        inner?.function()
    }

    pub(super) fn fences(&self) -> bool {
        matches!(self.what, What::Flush { fence: true, .. } | What::Fence { .. })
    }
}

/// The event by which a store must be durable, seen from a stack.
struct Until<'m> {
    /// The outermost frame of the stack that has returned by then, or has come to `at`.
    limit: usize,
    /// In the function of that frame.
    at: Option<Value<'m>>,
}

impl<'m> Planner<'m, '_> {
    pub(super) fn needs(&self, findings: &[Finding], left: &mut Vec<Left>) -> Vec<Need<'m>> {
        let mut needs = Vec::new();
        for (index, finding) in findings.iter().enumerate() {
            let need = match finding.kind {
                Kind::MissingFlush => {
                    let fenced = finding.durable_by.as_ref();
                    self.flush(&finding.stack, fenced, Some(index))
                }
                Kind::MissingFence if self.options.inject_flushes => continue,
                Kind::MissingFence => self.fence(finding, index),
                _ => continue,
            };
            match need {
                Ok(need) => needs.push(need),
                Err(reason) => left.push(Left { finding: index, reason }),
            }
        }
        if self.options.inject_flushes {
            needs.extend(self.passed_by(findings));
        }
        needs
    }

    /// Stores that a fence passed by and that are no findings, because a later store to the same bytes is.
    fn passed_by(&self, findings: &[Finding]) -> Vec<Need<'m>> {
        let reported = |stack: &[Frame]| {
            let mut flushes = findings.iter().filter(|finding| finding.kind == Kind::MissingFlush);
            flushes.any(|finding| finding.stack == stack)
        };
        self.observed
            .stores
            .iter()
            .filter(|store| !reported(&store.seen.stack))
            .filter_map(|store| {
                let fence = DurableBy {
                    kind: DurableByKind::Fence,
                    stack: store.passed_by.clone()?,
                };
                // What cannot be located is no finding, so nothing is left of one.
                self.flush(&store.seen.stack, Some(&fence), None).ok()
            })
            .collect()
    }

    fn flush(
        &self,
        frames: &[Frame],
        durable_by: Option<&DurableBy>,
        finding: Option<usize>,
    ) -> Result<Need<'m>, String> {
        let stack = self
            .locator
            .stack(frames, Wanted::Store)
            .map_err(|error| error.to_string())?;
        for &store in &stack.at {
            flushable(store)?;
        }
        let observed = self.observed.store(frames);
        // A finding shows one of the stores with its stack; another may have come before a fence.
        let passed_by = observed
            .and_then(|store| store.passed_by.clone())
            .filter(|_| self.options.inject_flushes)
            .map(|stack| DurableBy {
                kind: DurableByKind::Fence,
                stack,
            });
        let durable_by = passed_by.as_ref().or(durable_by);
        let until = self.until(frames, durable_by);
        let by_fence = durable_by.is_some_and(|durable_by| durable_by.kind == DurableByKind::Fence);
        let served = by_fence && observed.is_some_and(|store| store.always_fenced)
            || stack.at.iter().all(|&store| self.is_served(store, &stack, &until));
        if self.options.inject_flushes && !by_fence {
            return Err(
                "no fence of its thread comes after it, and with --inject-flushes the fences are the program's".into(),
            );
        }
        let stack_calls: Vec<Value> = stack
            .calls
            .iter()
            .map_while(|call| call.as_ref().ok())
            .copied()
            .collect();
        // Without the event nobody knows how far out is still in time.
        let calls = match durable_by {
            Some(_) => until.limit.saturating_sub(stack.innermost).min(stack_calls.len()),
            None => 0,
        };
        Ok(Need {
            finding,
            what: What::Flush {
                stores: stack.at,
                fence: !served && !self.options.inject_flushes,
            },
            stack_calls,
            calls,
        })
    }

    fn fence(&self, finding: &Finding, index: usize) -> Result<Need<'m>, String> {
        let flushed = finding.related.first();
        let (frames, wanted) = match flushed {
            Some(flush) => (&flush.stack, Wanted::Flush),
            // A non-temporal store needs no flush.
            None => (&finding.stack, Wanted::Store),
        };
        let stack = self.locator.stack(frames, wanted).map_err(|error| error.to_string())?;
        let until = self.until(frames, finding.durable_by.as_ref());
        let together = match flushed {
            Some(flush) => limit(&flush.stack, &finding.stack),
            None => stack.innermost,
        };
        let level = together.min(until.limit).saturating_sub(stack.innermost);
        let after = match level.checked_sub(1) {
            None => stack.at.last().copied(),
            // Further in, if the stack is not known that far.
            Some(level) => {
                let known = stack.calls.iter().take(level + 1).map_while(|call| call.as_ref().ok());
                known.last().or(stack.at.last()).copied()
            }
        };
        let after = after.ok_or("its stack is empty")?;
        Ok(Need {
            finding: Some(index),
            what: What::Fence { after },
            stack_calls: Vec::new(),
            calls: 0,
        })
    }

    /// Whether fences that are there come after the store on every path, in time.
    fn is_served(&self, store: Value<'m>, stack: &Stack<'m>, until: &Until<'m>) -> bool {
        let calls = stack.calls.iter().map_while(|call| call.as_ref().ok()).copied();
        for (level, at) in std::iter::once(store).chain(calls).enumerate() {
            let frame = stack.innermost + level;
            let end = if frame == until.limit { until.at } else { None };
            match self.fences.after(at, end) {
                Paths::Fenced => return true,
                Paths::TooLate => return false,
                Paths::Returns if frame >= until.limit => return false,
                Paths::Returns => {}
            }
        }
        false
    }

    fn until(&self, frames: &[Frame], durable_by: Option<&DurableBy>) -> Until<'m> {
        let Some(durable_by) = durable_by else {
            return Until { limit: 0, at: None };
        };
        let limit = limit(frames, &durable_by.stack);
        let wanted = match durable_by.kind {
            DurableByKind::Fence => Wanted::Fence,
            DurableByKind::TxEnd | DurableByKind::Unmap | DurableByKind::Exit => Wanted::Call,
        };
        let common = frames.len().saturating_sub(limit + 1);
        let frame = (durable_by.stack.len()).checked_sub(common + 1);
        let located = self.locator.stack(&durable_by.stack, wanted).ok();
        let at = located.zip(frame).and_then(|(located, frame)| {
            match frame.checked_sub(located.innermost)?.checked_sub(1) {
                None => located.at.first().copied(),
                Some(level) => located.calls.get(level)?.as_ref().ok().copied(),
            }
        });
        Until { limit, at }
    }
}

/// Whether it is known which bytes to flush after it.
fn flushable(store: Value) -> Result<(), String> {
    if store.store_pointer().is_some() {
        return Ok(());
    }
    if store.assembly().is_some() {
        return Err("the store is inline assembly, which says neither where nor how much it writes".into());
    }
    match store.called_function() {
        Some(_) if store.written().is_some() => Ok(()),
        Some(function) => Err(format!(
            "the store is in `{}`, which was not built by crashproof cc, and what it writes is not known",
            function.name()
        )),
        None => {
            Err("the store is in a function that was not built by crashproof cc and is called through a pointer".into())
        }
    }
}

/// The outermost frame of `stack` (by index) that is not on `other`, too: it is the function that leads to both, at the call that
/// leads to the former alone.
pub(super) fn limit(stack: &[Frame], other: &[Frame]) -> usize {
    let pairs = stack.iter().rev().zip(other.iter().rev());
    let common = pairs.take_while(|(one, other)| is_same(one, other)).count();
    stack.len().saturating_sub(common + 1)
}

/// The same call: of one line there may be several, which addresses tell apart, if both are of one binary.
fn is_same(one: &Frame, other: &Frame) -> bool {
    let position = |frame: &Frame| (frame.function.clone(), frame.file.clone(), frame.line, frame.column);
    let known = one.module.is_some() && one.module == other.module && one.address != 0 && other.address != 0;
    position(one) == position(other) && (!known || one.address == other.address)
}
