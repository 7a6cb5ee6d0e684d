//! `crashproof repair`: becomes `crashproof-repair`.

use std::ffi::OsString;

use super::sibling;

/// `words` are those of the command line, which are known to be right; the other program has no subcommands.
pub(crate) fn run(words: impl IntoIterator<Item = OsString>) -> super::Result {
    let mut command = sibling::command("crashproof-repair")?;
    let mut words: Vec<OsString> = words.into_iter().collect();
    // After `--color WHEN`, if that is there; neither is called so.
    if let Some(at) = words.iter().position(|word| word == "repair") {
        words.remove(at);
    }
    command.args(words);
    Err(sibling::become_it(command).into())
}
