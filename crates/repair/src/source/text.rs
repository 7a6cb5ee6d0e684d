//! The text of a source file: positions, tokens and the habits of its layout.
//!
//! The lexer knows just enough of C and C++ to tell code from comments, strings and directives; what the code means is libclang's to say.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;

/// A file as it is before the repair.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Canonical.
    pub path: PathBuf,
    pub text: String,
    line_starts: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Word,
    Literal,
    Punctuation,
    /// From `#` to the end of the (continued) line.
    Directive,
}

/// A token that is no comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
}

impl SourceFile {
    pub(crate) fn new(path: PathBuf, text: String) -> SourceFile {
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        SourceFile {
            path,
            text,
            line_starts,
        }
    }

    /// Without its folder.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.path.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Of a line and column as the debug information counts them, from 1; columns are bytes.
    pub(crate) fn offset(&self, line: u32, column: u32) -> Option<usize> {
        let start = *self.line_starts.get((line as usize).checked_sub(1)?)?;
        let offset = start + (column as usize).saturating_sub(1);
        (offset <= self.text.len() && self.text.is_char_boundary(offset)).then_some(offset)
    }

    pub(crate) fn line_start(&self, offset: usize) -> usize {
        self.line_starts[self.line_starts.partition_point(|start| *start <= offset) - 1]
    }

    /// Counted from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// Of a line, from 1, without the line break.
    pub(crate) fn line_text(&self, line: usize) -> &str {
        let start = self.line_starts[line - 1];
        &self.text[start..self.line_end(start)]
    }

    /// Without the line break.
    pub(crate) fn line_end(&self, offset: usize) -> usize {
        let end = self.text[offset..]
            .find('\n')
            .map_or(self.text.len(), |length| offset + length);
        match self.text[..end].ends_with('\r') && end > offset {
            true => end - 1,
            false => end,
        }
    }

    /// The white space that the line of the offset begins with.
    pub(crate) fn indentation(&self, offset: usize) -> &str {
        let line = &self.text[self.line_start(offset)..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    pub(crate) fn newline(&self) -> &'static str {
        match self.text.contains("\r\n") {
            true => "\r\n",
            false => "\n",
        }
    }

    /// One level of indentation: what the lines after an opening brace most often add.
    pub(crate) fn indentation_unit(&self) -> &str {
        let mut votes: Vec<(&str, usize)> = Vec::new();
        let mut lines = self.text.lines().filter(|line| !line.trim().is_empty());
        let mut previous = lines.next().unwrap_or_default();
        let indentation = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
        for line in lines {
            let outer = &previous[..indentation(previous)];
            let inner = &line[..indentation(line)];
            if previous.trim_end().ends_with('{')
                && let Some(added) = inner.strip_prefix(outer)
                && !added.is_empty()
            {
                match votes.iter_mut().find(|(unit, _)| *unit == added) {
                    Some((_, count)) => *count += 1,
                    None => votes.push((added, 1)),
                }
            }
            previous = line;
        }
        let most = votes.iter().map(|(_, count)| *count).max();
        votes
            .iter()
            .find(|(_, count)| Some(*count) == most)
            .map_or("    ", |(unit, _)| unit)
    }

    /// Whether the braces of control statements stand on lines of their own, more often than not.
    pub(crate) fn breaks_before_braces(&self) -> bool {
        let mut own = 0;
        let mut same = 0;
        let mut after_control = false;
        for line in self.text.lines() {
            let code = line.trim();
            let is_control = ["if", "for", "while", "else", "switch", "do", "} else"]
                .iter()
                .any(|word| {
                    code.strip_prefix(word)
                        .is_some_and(|rest| !rest.starts_with(is_word_character))
                });
            own += usize::from(code == "{" && after_control);
            same += usize::from(is_control && code.ends_with('{'));
            after_control = is_control && !code.ends_with(['{', ';', '}']);
        }
        own > same
    }

    /// Whether `sizeof x` is written without parentheses, more often than not.
    pub(crate) fn has_bare_sizeof(&self) -> bool {
        let tokens = self.tokens(0..self.text.len());
        let mut bare = 0;
        let mut parenthesised = 0;
        for (at, token) in tokens.iter().enumerate() {
            if self.token_text(*token) != "sizeof" {
                continue;
            }
            let next = |index: usize| tokens.get(at + index).map_or("", |token| self.token_text(*token));
            match next(1) {
                // Of a type, there is no choice.
                "(" => parenthesised += usize::from(next(2) == "*" || matches!(next(3), "->" | "." | "[")),
                _ => bare += 1,
            }
        }
        bare > parenthesised
    }

    /// Whether a space stands between a name and the parenthesis of its arguments, more often than not.
    pub(crate) fn spaces_before_parentheses(&self) -> bool {
        const KEYWORDS: [&str; 8] = [
            "if",
            "for",
            "while",
            "switch",
            "return",
            "sizeof",
            "__attribute__",
            "defined",
        ];
        let tokens = self.tokens(0..self.text.len());
        let mut spaced = 0;
        let mut joined = 0;
        for pair in tokens.windows(2) {
            let (name, open) = (self.token_text(pair[0]), self.token_text(pair[1]));
            if pair[0].kind == TokenKind::Word && open == "(" && !KEYWORDS.contains(&name) {
                match pair[0].end == pair[1].start {
                    true => joined += 1,
                    false => spaced += 1,
                }
            }
        }
        spaced > joined
    }

    pub(crate) fn tokens(&self, range: Range<usize>) -> Vec<Token> {
        Lexer {
            text: &self.text,
            at: range.start,
            end: range.end,
            // A range begins amid a line as a rule; a directive begins one.
            line_is_blank: self.text[self.line_start(range.start)..range.start].trim().is_empty(),
        }
        .collect()
    }

    pub(crate) fn token_text(&self, token: Token) -> &str {
        &self.text[token.start..token.end]
    }

    /// The first token at or after the offset.
    pub(crate) fn next_token(&self, offset: usize) -> Option<Token> {
        let mut lexer = Lexer {
            text: &self.text,
            at: offset,
            end: self.text.len(),
            line_is_blank: self.text[self.line_start(offset)..offset].trim().is_empty(),
        };
        lexer.next()
    }

    pub(crate) fn has_directive(&self, range: Range<usize>) -> bool {
        self.tokens(range)
            .iter()
            .any(|token| token.kind == TokenKind::Directive)
    }

    /// Whether the word occurs in the code of the range.
    /// Whether the file may take the address of a variable. `&name->member` does not, and neither does `a & name`, which is told from the former with care only.
    pub(crate) fn may_take_address(&self, name: &str) -> bool {
        let tokens = self.tokens(0..self.text.len());
        let text = |index: usize| tokens.get(index).map_or("", |token| self.token_text(*token));
        tokens.iter().enumerate().any(|(index, token)| match token.kind {
            // A macro may do anything with it.
            TokenKind::Directive => {
                let directive = self.token_text(*token);
                let mut words = directive.split(|character| !is_word_character(character));
                directive.contains("define") && words.any(|word| word == name)
            }
            TokenKind::Word if text(index) == name => {
                let mut before = index;
                while before > 0 && text(before - 1) == "(" {
                    before -= 1;
                }
                before > 0 && text(before - 1) == "&" && text(index + 1) != "->"
            }
            _ => false,
        })
    }

    pub(crate) fn mentions(&self, range: Range<usize>, word: &str) -> bool {
        self.tokens(range)
            .into_iter()
            .any(|token| token.kind == TokenKind::Word && self.token_text(token) == word)
    }
}

pub(crate) fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '$'
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    end: usize,
    line_is_blank: bool,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..self.end]
    }

    /// Up to and including the first of `last`, or all.
    fn skip_past(&mut self, from: usize, last: &str) {
        let tail = &self.text[(self.at + from).min(self.end)..self.end];
        let length = tail.find(last).map_or(tail.len(), |at| at + last.len());
        self.at = (self.at + from).min(self.end) + length;
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            if rest.starts_with("/*") {
                self.skip_past(2, "*/");
            } else if rest.starts_with("//") {
                self.skip_past(2, "\n");
                self.line_is_blank = true;
            } else if rest.starts_with("\\\n") {
                self.at += 2;
            } else if rest.starts_with("\\\r\n") {
                self.at += 3;
            } else if let Some(character) = rest.chars().next().filter(|character| character.is_whitespace()) {
                self.line_is_blank |= character == '\n';
                self.at += character.len_utf8();
            } else {
                return;
            }
        }
    }

    fn quoted(&self, quote: char) -> usize {
        let mut escaped = false;
        for (at, character) in self.rest().char_indices().skip(1) {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '\n' => return at,
                _ if character == quote => return at + 1,
                _ => {}
            }
        }
        self.rest().len()
    }

    fn directive(&self) -> usize {
        let rest = self.rest();
        let mut from = 0;
        while let Some(at) = rest[from..].find('\n') {
            let line = rest[..from + at].trim_end_matches('\r');
            if !line.ends_with('\\') {
                return line.len();
            }
            from += at + 1;
        }
        rest.len()
    }

    /// `R"tag(…)tag"`, with the prefix `R`, `LR`, … already seen at the current position.
    fn raw_string(&self) -> Option<usize> {
        let rest = self.rest();
        let quote = rest.find('"')?;
        if !["R", "LR", "uR", "UR", "u8R"].contains(&&rest[..quote]) {
            return None;
        }
        let open = quote + 1 + rest[quote + 1..].find('(')?;
        let close = format!("){}\"", &rest[quote + 1..open]);
        Some(
            rest[open..]
                .find(&close)
                .map_or(rest.len(), |at| open + at + close.len()),
        )
    }
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.skip_blanks();
        let start = self.at;
        let rest = self.rest();
        let first = rest.chars().next()?;
        let (kind, length) = if first == '#' && self.line_is_blank {
            (TokenKind::Directive, self.directive())
        } else if let Some(length) = matches!(first, 'R' | 'L' | 'u' | 'U')
            .then(|| self.raw_string())
            .flatten()
        {
            (TokenKind::Literal, length)
        } else if first == '"' || first == '\'' {
            (TokenKind::Literal, self.quoted(first))
        } else if first.is_ascii_digit() {
            let length = rest
                .find(|character: char| !is_word_character(character) && character != '.' && character != '\'')
                .unwrap_or(rest.len());
            (TokenKind::Literal, length)
        } else if is_word_character(first) {
            let length = rest
                .find(|character: char| !is_word_character(character))
                .unwrap_or(rest.len());
            (TokenKind::Word, length)
        } else {
            let long = [
                "<<=", ">>=", "->*", "...", "->", "++", "--", "==", "!=", "<=", ">=", "&&", "||", "::", "+=", "-=",
                "*=", "/=", "%=", "&=", "|=", "^=",
            ];
            let length = long
                .iter()
                .find(|long| rest.starts_with(**long))
                .map_or(first.len_utf8(), |long| long.len());
            (TokenKind::Punctuation, length)
        };
        self.line_is_blank = false;
        self.at = start + length;
        Some(Token {
            kind,
            start,
            end: self.at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> SourceFile {
        SourceFile::new("x.c".into(), text.into())
    }

    #[test]
    fn comments_strings_and_directives_are_no_code() {
        let text = "a /* b; */ = \"c;\\\"\"; // d;\n#define e \\\n f;\nR\"x(g;)x\" h";
        let source = file(text);
        let tokens = source.tokens(0..text.len());
        let texts: Vec<&str> = tokens.iter().map(|token| source.token_text(*token)).collect();
        assert_eq!(
            texts,
            ["a", "=", "\"c;\\\"\"", ";", "#define e \\\n f;", "R\"x(g;)x\"", "h"]
        );
        assert!(source.mentions(0..text.len(), "h"));
        assert!(!source.mentions(0..text.len(), "d"));
    }

    #[test]
    fn layout_is_measured() {
        assert_eq!(file("int f() {\n\treturn 1;\n}\n").indentation_unit(), "\t");
        assert_eq!(file("int f() {\n  return 1;\n}\n").indentation_unit(), "  ");
        assert!(file("if (x)\n{\n}\nfor (;;)\n{\n}\n").breaks_before_braces());
        assert!(!file("int f()\n{\n  if (x) {\n  }\n}\n").breaks_before_braces());
        assert_eq!(file("a\r\nb").newline(), "\r\n");
    }
}
