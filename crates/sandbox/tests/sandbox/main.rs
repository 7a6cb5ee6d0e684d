//! Sandboxes, end to end: what recoveries may do, and that nothing of it is left.
//!
//! This program is its own supervisor. The recoveries are modes of `recovery.c`, which is compiled first; each runs twice or more in
//! one sandbox, and complains if it finds what an earlier run did.

mod cases;
mod support;

fn main() {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == "sandbox-supervisor")
    {
        crashproof_sandbox::supervise();
    }
    if let [_, mode, pool] = &std::env::args().collect::<Vec<_>>()[..]
        && mode == "run-for-ever"
    {
        return cases::run_for_ever(pool);
    }
    let arguments = libtest_mimic::Arguments::from_args();
    let tests = cases::all()
        .into_iter()
        .map(|(name, test)| {
            let missing = cases::missing(name);
            let trial = libtest_mimic::Trial::test(name, move || {
                if let Some(what) = missing {
                    return Err(what.into());
                }
                test();
                Ok(())
            });
            trial.with_ignored_flag(missing.is_some())
        })
        .collect();
    libtest_mimic::run(&arguments, tests).exit()
}
