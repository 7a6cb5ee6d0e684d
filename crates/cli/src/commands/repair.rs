//! `crashproof repair`: becomes `crashproof-repair`.

use std::ffi::OsString;

use super::sibling;

/// `words` are those of the command line, which are known to be right; the other program has no subcommands.
pub fn run(words: impl IntoIterator<Item = OsString>) -> super::Result {
    let mut command = sibling::command("crashproof-repair")?;
    let mut named = false;
    command.args(words.into_iter().filter(|word| named || !std::mem::replace(&mut named, word == "repair")));
    Err(sibling::become_it(command).into())
}
