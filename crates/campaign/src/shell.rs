//! Commands that users give as one string, as they would type it.
//!
//! What needs no shell is started directly, since a program that is started directly can be parked at `main`; everything
//! else goes to `/bin/sh -c`.

use std::ffi::OsString;

use crashproof_sandbox::Command;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CommandError {
    #[error("{option} is empty; give the command as you would type it, as in {option} './app --verify pool'")]
    Empty { option: &'static str },
    #[error("{option} {text:?} has a quotation mark that nothing closes")]
    Unclosed { option: &'static str, text: String },
}

/// `option` is for messages.
pub fn command(option: &'static str, text: &str) -> Result<Command, CommandError> {
    let words = shell_words::split(text).map_err(|_| CommandError::Unclosed {
        option,
        text: text.to_owned(),
    })?;
    if words.is_empty() {
        return Err(CommandError::Empty { option });
    }
    if needs_shell(text, &words[0]) {
        Ok(Command::Shell(OsString::from(text)))
    } else {
        Ok(Command::Direct(words.into_iter().map(OsString::from).collect()))
    }
}

/// Whether a shell would do more with it than split it into words.
pub fn needs_shell(text: &str, first: &str) -> bool {
    let assigns = first
        .split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
    assigns || BUILT_IN.contains(&first) || has_syntax(text)
}

/// What the shell does itself and no program can do for it.
const BUILT_IN: [&str; 27] = [
    ".", ":", "alias", "case", "cd", "command", "eval", "exec", "exit", "export", "for", "if", "local", "read",
    "readonly", "return", "set", "shift", "source", "times", "trap", "type", "ulimit", "umask", "unset", "until",
    "while",
];

fn has_syntax(text: &str) -> bool {
    #[derive(Clone, Copy, PartialEq)]
    enum Quote {
        None,
        Single,
        Double,
    }
    let mut quote = Quote::None;
    let mut starts_word = true;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Quote::Single, '\'') | (Quote::Double, '"') => quote = Quote::None,
            (Quote::Single, _) => {}
            (Quote::Double, '$' | '`') => return true,
            (_, '\\') => {
                characters.next();
            }
            (Quote::Double, _) => {}
            (Quote::None, '\'') => quote = Quote::Single,
            (Quote::None, '"') => quote = Quote::Double,
            (Quote::None, '#' | '~' | '!' | '{') if starts_word => return true,
            (Quote::None, '|' | '&' | ';' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '[' | '\n') => return true,
            (Quote::None, _) => {}
        }
        starts_word = quote == Quote::None && character.is_whitespace();
    }
    false
}

/// As one would type it.
pub fn show(command: &Command) -> String {
    match command {
        Command::Direct(words) => shell_words::join(words.iter().map(|word| word.to_string_lossy())),
        Command::Shell(text) => text.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(text: &str) -> Option<Vec<String>> {
        match command("--recover", text).unwrap() {
            Command::Direct(words) => Some(words.into_iter().map(|word| word.into_string().unwrap()).collect()),
            Command::Shell(_) => None,
        }
    }

    #[test]
    fn what_needs_no_shell_is_started_directly() {
        assert_eq!(direct("./app --verify pool").unwrap(), ["./app", "--verify", "pool"]);
        assert_eq!(
            direct(" ./app 'a b' \"c d\" e\\ f").unwrap(),
            ["./app", "a b", "c d", "e f"]
        );
        assert_eq!(
            direct("./app 'a;b' --x=y c#d '$x'").unwrap(),
            ["./app", "a;b", "--x=y", "c#d", "$x"]
        );
    }

    #[test]
    fn what_needs_a_shell_gets_one() {
        for text in [
            "./a | ./b",
            "./a && ./b",
            "./a; ./b",
            "./a > f",
            "./a $HOME",
            "./a \"$HOME\"",
            "./a `b`",
            "X=1 ./a",
            "./a *.pm",
            "cd x",
            "./a # why",
            "~/a",
            "(./a)",
            "! ./a",
            "./a\n./b",
            "if ./a; then ./b; fi",
        ] {
            assert_eq!(direct(text), None, "{text}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        assert_eq!(command("--check", "  "), Err(CommandError::Empty { option: "--check" }));
        assert!(matches!(
            command("--check", "./a 'b"),
            Err(CommandError::Unclosed { .. })
        ));
    }

    #[test]
    fn shown_as_typed() {
        assert_eq!(show(&command("--recover", "./a 'b c' d").unwrap()), "./a 'b c' d");
        assert_eq!(show(&command("--recover", "./a | ./b").unwrap()), "./a | ./b");
    }
}
