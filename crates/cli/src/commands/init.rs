//! `crashproof init`: a `crashproof.toml` to fill in. It guesses nothing: what a project has to say is commented out.

use std::io::Write;
use std::path::PathBuf;

use super::Result;
use crate::arguments::InitArguments;
use crate::exit::Exit;
use crate::terminal;

const TEMPLATE: &str = include_str!("init.toml");

#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("{} is there already; --force replaces it", path.display())]
    Exists { path: PathBuf },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

pub(crate) fn run(arguments: &InitArguments) -> Result {
    let path = &arguments.file;
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    match arguments.force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(TEMPLATE.as_bytes()));
    written.map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => InitError::Exists { path: path.clone() },
        _ => InitError::Write {
            path: path.clone(),
            source,
        },
    })?;
    terminal::note(&format_args!(
        "wrote {}; fill in the program and its recovery, then run `crashproof test`",
        path.display()
    ));
    Ok(Exit::Clean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crashproof_campaign::project::Test;
    use crashproof_check::Config;

    /// The lines that a user would uncomment: those that are TOML.
    fn filled_in() -> String {
        let uncommented = TEMPLATE.lines().map(|line| line.strip_prefix('#').unwrap_or(line));
        let lines: Vec<&str> = uncommented.filter(|line| !line.starts_with(' ')).collect();
        lines.join("\n")
    }

    #[test]
    fn the_template_is_valid_as_it_is_and_filled_in() {
        let path = std::path::Path::new("crashproof.toml");
        let config = Config::<Test>::parse(TEMPLATE, path).unwrap();
        assert!(config.tests.is_empty() && config.rules.is_empty() && config.ignores.is_empty());
        let config = Config::<Test>::parse(&filled_in(), path).unwrap();
        assert_eq!(
            (config.tests.len(), config.rules.len(), config.ignores.len()),
            (2, 2, 1)
        );
        assert!(config.tests[0].text("recover").is_some());
    }
}
