//! Which processes of the program live, as far as the recorder can see from outside.

use std::fs;
use std::sync::atomic::Ordering;

use crashproof_wire::Session;
use rustc_hash::FxHashMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Running { stopped: bool, start: u64 },
    Dead,
}

struct Watched {
    /// Start time of the process, to tell it from a later one with the same number; `None`: it was never seen alive.
    start: Option<u64>,
    /// `tail` of the ring when the death was noticed: what the process published lies before it.
    died_at: Option<u64>,
    stopped: bool,
}

/// The processes that registered with the session, or that the log says have started.
#[derive(Default)]
pub(crate) struct Watch {
    processes: FxHashMap<u32, Watched>,
    /// Largest `died_at`: only before it can a dead process have left a hole.
    last_death: u64,
}

impl Watch {
    pub(crate) fn add(&mut self, pid: u32) {
        self.processes.entry(pid).or_insert_with(|| {
            let start = match look(pid) {
                Life::Running { start, .. } => Some(start),
                Life::Dead => None,
            };
            Watched {
                start,
                died_at: None,
                stopped: false,
            }
        });
    }

    /// Looks at each process that is not known to be dead.
    pub(crate) fn update(&mut self, session: &Session) {
        for slot in &session.processes {
            match slot.pid.load(Ordering::Acquire) {
                0 => {}
                pid => self.add(pid),
            }
        }
        for (&pid, watched) in &mut self.processes {
            if watched.died_at.is_some() {
                continue;
            }
            match look(pid) {
                Life::Running { stopped, start } if watched.start == Some(start) => watched.stopped = stopped,
                _ => {
                    let tail = session.tail.0.load(Ordering::Acquire);
                    watched.died_at = Some(tail);
                    watched.stopped = false;
                    self.last_death = self.last_death.max(tail);
                }
            }
        }
    }

    /// Takes out the dead whose records were all consumed, and gives their place in the table back.
    pub(crate) fn take_dead(&mut self, session: &Session, position: u64) -> Vec<u32> {
        let gone = |w: &Watched| w.died_at.is_some_and(|tail| tail <= position);
        let dead: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, w)| gone(w))
            .map(|(&pid, _)| pid)
            .collect();
        for pid in &dead {
            self.processes.remove(pid);
            for slot in session
                .processes
                .iter()
                .filter(|s| s.pid.load(Ordering::Relaxed) == *pid)
            {
                slot.state.store(0, Ordering::Release);
                slot.pid.store(0, Ordering::Release);
            }
        }
        dead
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// A hole at `position` may be that of a dead process.
    pub(crate) fn died_after(&self, position: u64) -> bool {
        self.last_death > position
    }

    /// Of the processes whose records were not all consumed yet.
    pub(crate) fn all_dead(&self) -> bool {
        self.processes.values().all(|w| w.died_at.is_some())
    }

    /// A process is stopped (job control, debugger): it may go on and commit what it reserved.
    pub(crate) fn any_stopped(&self) -> bool {
        self.processes.values().any(|w| w.stopped)
    }
}

/// From `/proc/PID/stat`. A zombie is dead.
fn look(pid: u32) -> Life {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    parse_stat(&stat).unwrap_or(Life::Dead)
}

fn parse_stat(stat: &[u8]) -> Option<Life> {
    // The command's name is in parentheses and may hold anything, parentheses too; field 3 follows the last one.
    let name_end = stat.iter().rposition(|&b| b == b')')?;
    let fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    Some(match state {
        // A main thread that has ended looks like this too while others run.
        "Z" | "X" | "x" if threads <= 1 => Life::Dead,
        _ => Life::Running {
            stopped: matches!(state, "T" | "t"),
            start,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_state_of_a_process() {
        assert!(matches!(
            look(std::process::id()),
            Life::Running {
                stopped: false,
                start: 1..
            }
        ));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while matches!(look(child.id()), Life::Running { .. }) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(look(child.id()), Life::Dead);
    }

    #[test]
    fn names_do_not_confuse_it() {
        let stat = b"12 (a ) Z (b) T 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 5 6";
        assert_eq!(
            parse_stat(stat),
            Some(Life::Running {
                stopped: true,
                start: 4711
            })
        );
        assert_eq!(parse_stat(b"12 (x) R 1"), None);
    }
}
