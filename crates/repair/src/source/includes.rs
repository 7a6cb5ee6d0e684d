//! Where an `#include` goes, and how it is written.

use std::path::{Component, Path, PathBuf};

use super::text::{SourceFile, TokenKind};

/// Adds the directives (what is behind `#include`) that the text has not yet; `before` is where they are needed.
pub(super) fn insertion(file: &SourceFile, before: usize, includes: &[String]) -> Option<(usize, String)> {
    let directives = directives(file);
    let missing: Vec<&String> = includes
        .iter()
        .filter(|include| {
            !directives
                .iter()
                .any(|directive| directive.includes.as_ref() == Some(*include))
        })
        .collect();
    if missing.is_empty() {
        return None;
    }
    let newline = file.newline();
    let lines: String = missing
        .iter()
        .map(|include| format!("#include {include}{newline}"))
        .collect();
    // The last of those that no condition (but a header's guard) holds.
    let candidates: Vec<&Directive> = directives
        .iter()
        .filter(|directive| directive.includes.is_some() && directive.end < before)
        .collect();
    let depth = candidates.iter().map(|directive| directive.depth).min();
    let last = candidates.iter().rev().find(|directive| Some(directive.depth) == depth);
    if let Some(last) = last {
        return Some((next_line(file, last.end), lines));
    }
    let guard = directives
        .iter()
        .take(2)
        .find(|directive| directive.is_guard && directive.end < before);
    let at = match guard {
        Some(guard) => next_line(file, guard.end),
        None => file
            .tokens(0..file.text.len())
            .first()
            .map_or(0, |token| file.line_start(token.start)),
    };
    // Apart from what follows, once.
    match file.text[at..].starts_with(['\r', '\n']) {
        true => Some((at, lines)),
        false => Some((at, format!("{lines}{newline}"))),
    }
}

struct Directive {
    end: usize,
    /// How many conditions are open.
    depth: usize,
    includes: Option<String>,
    /// The `#define` of a guard, or `#pragma once`.
    is_guard: bool,
}

fn directives(file: &SourceFile) -> Vec<Directive> {
    let mut depth: usize = 0;
    let mut directives = Vec::new();
    let tokens = file.tokens(0..file.text.len());
    for token in tokens.into_iter().filter(|token| token.kind == TokenKind::Directive) {
        let text = file.token_text(token)[1..].trim_start();
        let word_end = text
            .find(|character: char| !character.is_alphanumeric())
            .unwrap_or(text.len());
        let (word, rest) = text.split_at(word_end);
        match word {
            "if" | "ifdef" | "ifndef" => depth += 1,
            "endif" => depth = depth.saturating_sub(1),
            _ => {}
        }
        let name = rest.trim();
        let end = match name.chars().next() {
            Some('<') => name.find('>'),
            Some('"') => name[1..].find('"').map(|at| at + 1),
            _ => None,
        };
        directives.push(Directive {
            end: token.end,
            depth,
            includes: end.filter(|_| word == "include").map(|end| name[..=end].to_owned()),
            is_guard: (word == "pragma" && name == "once") || (word == "define" && depth == 1),
        });
    }
    directives
}

fn next_line(file: &SourceFile, offset: usize) -> usize {
    let end = file.line_end(offset);
    let rest = &file.text[end..];
    end + rest.find('\n').map_or(rest.len(), |at| at + 1)
}

/// The path of a file as another one of the tree includes it.
pub(super) fn relative(from: &Path, to: &Path) -> PathBuf {
    let folder: Vec<Component> = from.parent().into_iter().flat_map(Path::components).collect();
    let target: Vec<Component> = to.components().collect();
    let common = folder.iter().zip(&target).take_while(|(a, b)| a == b).count();
    let up = folder[common..].iter().map(|_| Component::ParentDir);
    up.chain(target[common..].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(text: &str) -> String {
        let file = SourceFile::new("x.c".into(), text.into());
        match insertion(&file, text.len(), &["<libpmem.h>".into()]) {
            Some((at, lines)) => format!("{}{lines}{}", &text[..at], &text[at..]),
            None => text.into(),
        }
    }

    #[test]
    fn behind_the_last_unconditional_include() {
        assert_eq!(
            added("#include <a.h>\n#ifdef X\n#include <b.h>\n#endif\nint x;\n"),
            "#include <a.h>\n#include <libpmem.h>\n#ifdef X\n#include <b.h>\n#endif\nint x;\n"
        );
        assert_eq!(
            added("#include <libpmem.h>\nint x;\n"),
            "#include <libpmem.h>\nint x;\n"
        );
        assert_eq!(
            added("// Words.\nint x;\n"),
            "// Words.\n#include <libpmem.h>\n\nint x;\n"
        );
        assert_eq!(
            added("#ifndef X_H\n#define X_H\nint x;\n#endif\n"),
            "#ifndef X_H\n#define X_H\n#include <libpmem.h>\n\nint x;\n#endif\n"
        );
    }

    #[test]
    fn relative_paths() {
        assert_eq!(
            relative(Path::new("/t/src/a.c"), Path::new("/t/pm.h")),
            Path::new("../pm.h")
        );
        assert_eq!(
            relative(Path::new("/t/src/a.c"), Path::new("/t/src/pm.h")),
            Path::new("pm.h")
        );
    }
}
