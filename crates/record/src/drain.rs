//! The recorder's loop: consumes the ring, keeps an eye on the processes that fill it, and decides when the recording is
//! over.
//!
//! It naps whenever the ring is empty, longer and longer: the ring holds far more than a program can log meanwhile, and
//! the program needs the processor more.
//!
//! A process that is killed can leave a *hole*: slots that it reserved and never committed. The loop waits at a hole
//! while its producer may be alive, and then goes on behind it; the trace says so.

use std::time::{Duration, Instant};

use crashproof_trace::{Counts, IncompleteReason, ProgramEnd};
use crashproof_wire::Session;

use crate::output::{Output, Written};
use crate::ring::{Consumer, Next};
use crate::translate::{Tracked, Translator};
use crate::unlabelled::Unlabelled;
use crate::verify::Images;
use crate::watch::Watch;

const SHORTEST_NAP: Duration = Duration::from_micros(100);
const LONGEST_NAP: Duration = Duration::from_millis(5);
/// While descendants of the command are waited for.
const LAST_NAP: Duration = Duration::from_millis(1);
/// How often the processes are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Records between two looks at the clock.
const BATCH: usize = 1 << 14;
/// A program that logs nothing for so long is not in the middle of an update.
const QUIET_AFTER: Duration = Duration::from_millis(250);
/// A program that logs nothing for so long gets its last block written.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// How long a hole may stay when every process is dead.
const ALL_DEAD_PATIENCE: Duration = Duration::from_millis(20);
/// How long a hole may stay after a process died that can have left it: longer than a busy machine keeps a thread of
/// another process waiting between its reservation and its commit.
const DEAD_PATIENCE: Duration = Duration::from_secs(1);
/// How long a hole may stay although no process is known to have died: threads die with their process's exec unseen.
const SLOW_PATIENCE: Duration = Duration::from_secs(5);
/// The command's end comes with the end of its descendants, or at most so much before: it does not wait for daemons.
const GRACE: Duration = Duration::from_secs(2);
/// A child forked at the very end needs a moment to make itself known.
const SETTLE: Duration = Duration::from_millis(10);

/// Slots that were reserved and are not committed.
struct Hole {
    position: u64,
    end: u64,
    since: Instant,
}

pub(crate) struct Recording<'s> {
    session: &'s Session,
    consumer: Consumer<'s>,
    translator: Translator,
    watch: Watch,
    hole: Option<Hole>,
}

/// What the ring gave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drained {
    /// There may be more.
    Batch,
    /// Records, then none.
    Some,
    Nothing,
}

impl<'s> Recording<'s> {
    pub(crate) fn new(session: &'s Session, output: Output, images: Images, tracked: Option<Tracked>) -> Recording<'s> {
        Recording {
            session,
            consumer: Consumer::new(session),
            translator: Translator::new(output, images, tracked),
            watch: Watch::default(),
            hole: None,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.translator.counts()
    }

    /// What is not known of dependences.
    pub(crate) fn unlabelled(&self) -> &Unlabelled {
        &self.translator.unlabelled
    }

    /// Whether any process had the runtime.
    pub(crate) fn saw_runtime(&self) -> bool {
        self.translator.saw_runtime()
    }

    /// Records until the command has ended, which `poll` tells, and its descendants too.
    pub(crate) fn run<T>(&mut self, mut poll: impl FnMut() -> Option<T>) -> T {
        let mut ended: Option<(T, Instant)> = None;
        let mut nap = SHORTEST_NAP;
        let mut last_look = Instant::now();
        let mut last_record = Some(last_look);
        let mut quiet = true;
        loop {
            let drained = self.drain();
            let now = Instant::now();
            if ended.is_some() || now.duration_since(last_look) >= LOOK_INTERVAL {
                self.look();
                last_look = now;
            }
            if drained != Drained::Batch {
                self.mind_the_hole(now, false);
            }
            ended = match ended {
                None => poll().map(|end| (end, now)),
                Some((end, since)) => {
                    let waited = now.duration_since(since);
                    if self.consumer.pending() == 0 && self.watch.is_empty() && waited >= SETTLE {
                        return end;
                    }
                    if waited >= GRACE {
                        self.close();
                        return end;
                    }
                    Some((end, since))
                }
            };
            if drained != Drained::Nothing {
                last_record = Some(now);
                quiet = false;
            } else if !quiet
                && ended.is_none()
                && !self.watch.any_stopped()
                && last_record.is_some_and(|t| now.duration_since(t) >= QUIET_AFTER)
            {
                self.translator.quiet();
                quiet = true;
            } else if last_record.is_some_and(|t| now.duration_since(t) >= FLUSH_AFTER) {
                self.translator.output.flush();
                last_record = None;
            }
            nap = match drained {
                Drained::Batch => continue,
                Drained::Some => SHORTEST_NAP,
                Drained::Nothing if ended.is_some() => LAST_NAP,
                Drained::Nothing => (nap * 2).min(LONGEST_NAP),
            };
            std::thread::sleep(nap);
        }
    }

    /// Verifies what is left to verify and ends the trace.
    pub(crate) fn finish(mut self, end: ProgramEnd) -> Written {
        for note in self.translator.images.finish() {
            self.translator.output.incomplete(note.reason, note.detail);
        }
        for left_out in self.translator.left_out.finish() {
            self.translator.output.left_out(&left_out);
        }
        self.translator.output.finish(end)
    }

    fn drain(&mut self) -> Drained {
        for consumed in 0..BATCH {
            match self.consumer.next() {
                Next::Record(position, kind, body) => self.translator.record(position, kind, body),
                Next::Empty | Next::Uncommitted => {
                    return if consumed == 0 { Drained::Nothing } else { Drained::Some };
                }
            }
        }
        Drained::Batch
    }

    /// Learns of births and deaths.
    fn look(&mut self) {
        for pid in self.translator.take_started() {
            self.watch.add(pid);
        }
        self.watch.update(self.session);
        for pid in self.watch.take_dead(self.session, self.consumer.position()) {
            self.translator.process_died(pid);
        }
    }

    /// Waits at a hole, or goes on behind it.
    fn mind_the_hole(&mut self, now: Instant, closing: bool) {
        if self.consumer.pending() == 0 {
            self.hole = None;
            return;
        }
        let position = self.consumer.position();
        let end = self.consumer.hole_end();
        let since = match &self.hole {
            Some(hole) if (hole.position, hole.end) == (position, end) => hole.since,
            _ => {
                self.hole = Some(Hole {
                    position,
                    end,
                    since: now,
                });
                return;
            }
        };
        let patience = match self.watch.died_after(position) {
            true if self.watch.all_dead() => ALL_DEAD_PATIENCE,
            _ if closing => DEAD_PATIENCE,
            _ if self.watch.any_stopped() => return,
            true => DEAD_PATIENCE,
            false => SLOW_PATIENCE,
        };
        if now.duration_since(since) >= patience && end > position {
            self.consumer.skip_to(end);
            self.hole = None;
            // At the close, a process that runs gave up on what it had no room to log.
            if !closing || self.watch.is_empty() {
                let detail = "a process died while it logged an event: that event is not in the trace".to_owned();
                self.translator.output.incomplete(IncompleteReason::Lost, detail);
            }
        }
    }

    /// Ends the recording although processes run: they go on unrecorded.
    fn close(&mut self) {
        use std::sync::atomic::Ordering;
        self.session.closed.store(1, Ordering::Release);
        let last = self.session.tail.0.load(Ordering::Acquire);
        while self.consumer.position() < last {
            if self.drain() != Drained::Batch {
                self.mind_the_hole(Instant::now(), true);
                std::thread::sleep(SHORTEST_NAP);
            }
        }
        self.look();
        let running = self.translator.running();
        if !running.is_empty() {
            let names = running.join(", ");
            let seconds = GRACE.as_secs();
            let detail = format!(
                "still running {seconds} s after the command had ended, when the recording stopped: {names}; \
                 record it in the foreground to see all of it"
            );
            self.translator.output.incomplete(IncompleteReason::Unsupported, detail);
        }
    }
}
