//! Changes of a text: collected, composed, and applied at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::anchor::{Anchor, Context, declaration};
use super::changed::{self, Cause, Splice};
use super::idiom::{Idiom, Include};
use super::refusal::Refusal;
use super::text::SourceFile;
use super::written::Flushed;

/// What is to run right after a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct After {
    pub flushes: Vec<Flushed>,
    pub fence: bool,
}

/// The changes of one text: a file, or the copy of a function in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edits {
    /// By the statement's range.
    insertions: BTreeMap<(usize, usize), Insertion>,
    replacements: BTreeMap<(usize, usize), String>,
    /// Of calls through pointers: functions, and what to call instead, by the range of the pointer.
    redirections: BTreeMap<(usize, usize), BTreeMap<String, String>>,
    /// Calls that replacements have written out: what they call has to be declared all the same.
    calls: Vec<(Rc<Idiom>, After)>,
    /// What the change of a range is made for.
    causes: BTreeMap<(usize, usize), BTreeSet<Cause>>,
}

#[derive(Clone, Debug)]
struct Insertion {
    context: Context,
    /// Declarations in front of the statement.
    before: Vec<String>,
    after: After,
    /// How to say it there.
    idiom: Rc<Idiom>,
    /// The variable that keeps a value, for contexts that need one.
    variable: String,
}

impl Edits {
    pub(crate) fn includes(&self) -> Vec<Include> {
        self.called().flat_map(|(idiom, after)| idiom.includes(after)).collect()
    }

    /// What the changes call, and how.
    fn called(&self) -> impl Iterator<Item = (&Idiom, &After)> {
        let insertions = self.insertions.values();
        insertions
            .map(|insertion| (&*insertion.idiom, &insertion.after))
            .chain(self.calls.iter().map(|(idiom, after)| (&**idiom, after)))
    }

    /// Notes calls that a replacement has written out.
    pub(crate) fn calls(&mut self, idiom: &Rc<Idiom>, after: &After) {
        self.calls.push((idiom.clone(), after.clone()));
    }

    /// The names that the insertions call.
    pub(crate) fn functions(&self) -> Vec<String> {
        let statements = self.called().flat_map(|(idiom, after)| idiom.statements(after));
        statements
            .filter_map(|statement| statement.split('(').next().map(str::to_owned))
            .collect()
    }

    /// Where the first change is.
    pub(crate) fn start(&self) -> Option<usize> {
        let insertions = self.insertions.keys().map(|key| key.0);
        insertions.chain(self.replacements.keys().map(|key| key.0)).min()
    }

    /// Says of all changes what they are made for.
    pub(crate) fn because(&mut self, cause: Cause) {
        let ranges = self.insertions.keys().chain(self.replacements.keys());
        for range in ranges.chain(self.redirections.keys()) {
            self.causes.entry(*range).or_default().insert(cause);
        }
    }

    /// What the changes are made for.
    pub(crate) fn causes(&self) -> BTreeSet<Cause> {
        self.causes.values().flatten().copied().collect()
    }

    /// `variable` is a name that is free in the function.
    pub(crate) fn insert_after(&mut self, anchor: &Anchor, after: After, idiom: &Rc<Idiom>, variable: &str) {
        let key = (anchor.statement.start, anchor.statement.end);
        let insertion = self.insertions.entry(key).or_insert_with(|| Insertion {
            context: anchor.context.clone(),
            before: Vec::new(),
            after: After::default(),
            idiom: idiom.clone(),
            variable: variable.into(),
        });
        for flush in after.flushes {
            let is_same = |other: &Flushed| other.address == flush.address && other.size == flush.size;
            if !insertion.after.flushes.iter().any(is_same) {
                insertion.after.flushes.push(flush);
            }
        }
        insertion.after.fence |= after.fence;
    }

    /// A declaration in front of a statement that has an insertion behind it.
    pub(crate) fn insert_before(&mut self, anchor: &Anchor, line: String) {
        let key = (anchor.statement.start, anchor.statement.end);
        if let Some(insertion) = self.insertions.get_mut(&key) {
            insertion.before.push(line);
        }
    }

    pub(crate) fn replace(&mut self, range: Range<usize>, text: String) -> Result<(), Refusal> {
        let overlaps = |&(start, end): &(usize, usize)| start < range.end && range.start < end;
        let key = (range.start, range.end);
        match self.replacements.get(&key) {
            Some(same) if *same == text => Ok(()),
            // Two insertions at one place: which would come first?
            Some(_) => Err(Refusal::Overlap),
            None if self.replacements.keys().any(overlaps) => Err(Refusal::Overlap),
            None => {
                self.replacements.insert(key, text);
                Ok(())
            }
        }
    }

    /// Lets a call through a pointer call another function where the pointer is to this one.
    pub(crate) fn redirect(&mut self, pointer: Range<usize>, original: String, instead: String) {
        let redirections = self.redirections.entry((pointer.start, pointer.end)).or_default();
        redirections.insert(original, instead);
    }

    /// Adds the changes of another collection of the same text.
    pub(crate) fn merge(&mut self, other: &Edits) -> Result<(), Refusal> {
        let mut merged = self.clone();
        for (&(start, end), text) in &other.replacements {
            merged.replace(start..end, text.clone())?;
        }
        for (range, redirections) in &other.redirections {
            let own = merged.redirections.entry(*range).or_default();
            own.extend(redirections.clone());
        }
        for (range, causes) in &other.causes {
            merged.causes.entry(*range).or_default().extend(causes);
        }
        for (&(start, end), insertion) in &other.insertions {
            let is_same = |mine: &&Insertion| mine.context == insertion.context;
            match merged.insertions.get(&(start, end)) {
                Some(mine) if !is_same(&mine) => return Err(Refusal::Overlap),
                _ => {}
            }
            let anchor = Anchor {
                node: 0,
                statement: start..end,
                context: insertion.context.clone(),
            };
            merged.insert_after(&anchor, insertion.after.clone(), &insertion.idiom, &insertion.variable);
            for line in &insertion.before {
                merged.insert_before(&anchor, line.clone());
            }
        }
        merged.calls.extend(other.calls.iter().cloned());
        *self = merged;
        Ok(())
    }

    /// The changes as pieces of text.
    pub(crate) fn splices(&self, file: &SourceFile) -> Vec<Splice> {
        let splice = |of: &(usize, usize), range: Range<usize>, text: String| Splice {
            range,
            text,
            causes: self.causes.get(of).cloned().unwrap_or_default(),
        };
        let replacements = self.replacements.iter();
        let mut splices: Vec<Splice> = replacements
            .map(|(at, text)| splice(at, at.0..at.1, text.clone()))
            .collect();
        for (at, insertion) in &self.insertions {
            let pieces = Layout { file }.splices(at.0..at.1, insertion);
            splices.extend(pieces.into_iter().map(|(range, text)| splice(at, range, text)));
        }
        for (at, redirections) in &self.redirections {
            let pointer = &file.text[at.0..at.1];
            let tests: String = redirections
                .iter()
                .map(|(original, instead)| format!("{pointer} == {original} ? {instead} : "))
                .collect();
            splices.push(splice(at, at.0..at.1, format!("({tests}{pointer})")));
        }
        splices
    }

    /// The range of the file with the changes in it.
    pub(crate) fn apply(&self, file: &SourceFile, range: Range<usize>) -> String {
        let splices = self.splices(file);
        let mut text = String::new();
        let mut from = range.start;
        for splice in changed::in_order(splices, &range) {
            text.push_str(&file.text[from..splice.range.start]);
            text.push_str(&splice.text);
            from = splice.range.end;
        }
        text.push_str(&file.text[from..range.end]);
        text
    }
}

/// Longer lines than this are broken.
const WIDTH: usize = 100;

/// Insertions in the layout of the file.
struct Layout<'a> {
    file: &'a SourceFile,
}

impl Layout<'_> {
    fn splices(&self, statement: Range<usize>, insertion: &Insertion) -> Vec<(Range<usize>, String)> {
        let lines = statements(self.file, &insertion.idiom, &insertion.after);
        let indentation = self.file.indentation(statement.start);
        let newline = self.file.newline();
        let variable = &insertion.variable;
        let before = |splices: &mut Vec<(Range<usize>, String)>| {
            for line in &insertion.before {
                splices.push((
                    statement.start..statement.start,
                    format!("{line}{newline}{indentation}"),
                ));
            }
        };
        let mut splices = Vec::new();
        match &insertion.context {
            Context::Block { end } => {
                before(&mut splices);
                splices.push(self.behind(*end, indentation, &lines));
            }
            Context::Body { header_end, body, end } => {
                splices.extend(self.braces(*header_end, *body, &statement, *end, &insertion.before, &lines));
            }
            Context::Comma => {
                let calls: Vec<&str> = lines.iter().map(|line| line.trim_end_matches(';')).collect();
                splices.push((statement.end..statement.end, format!(", {}", calls.join(", "))));
            }
            Context::Return { end, ty } => {
                before(&mut splices);
                let keyword = statement.start..statement.start + "return".len();
                let mut lines = lines.clone();
                match ty {
                    Some(ty) => {
                        splices.push((keyword, format!("{} =", declaration(ty, variable))));
                        lines.push(format!("return {variable};"));
                    }
                    None => {
                        let value = self
                            .file
                            .next_token(keyword.end)
                            .map_or(keyword.end, |token| token.start);
                        splices.push((keyword.start..value, String::new()));
                        lines.push("return;".into());
                    }
                }
                splices.push(self.behind(*end, indentation, &lines));
            }
            Context::Condition { value, ty } => {
                before(&mut splices);
                let header = self.file.text[statement.start..value.start].to_owned();
                splices.push((
                    statement.start..value.start,
                    format!("{} = ", declaration(ty, variable)),
                ));
                let mut tail = String::from(";");
                for line in &lines {
                    tail.push_str(&format!("{newline}{indentation}{line}"));
                }
                tail.push_str(&format!("{newline}{indentation}{header}{variable}"));
                splices.push((value.end..value.end, tail));
            }
            Context::LoopCondition { value, ty, declare } => {
                let outer = self.file.indentation(*declare);
                splices.push((
                    *declare..*declare,
                    format!("{};{newline}{outer}", declaration(ty, variable)),
                ));
                splices.push((value.start..value.start, format!("{variable} = ")));
                let calls: Vec<&str> = lines.iter().map(|line| line.trim_end_matches(';')).collect();
                splices.push((value.end..value.end, format!(", {}, {variable}", calls.join(", "))));
            }
            Context::Constructor { body } => splices.push(self.at_start_of_body(*body, &lines)),
        }
        splices
    }

    /// Behind a statement: on lines of their own, unless code follows on its line.
    fn behind(&self, end: usize, indentation: &str, lines: &[String]) -> (Range<usize>, String) {
        let newline = self.file.newline();
        let line_end = self.file.line_end(end);
        let rest = self.file.text[end..line_end].trim_start();
        let is_comment = rest.starts_with("//")
            || (rest.starts_with("/*") && rest.trim_end().find("*/") == Some(rest.trim_end().len().saturating_sub(2)));
        if rest.is_empty() || is_comment {
            let text: String = lines
                .iter()
                .map(|line| format!("{newline}{indentation}{line}"))
                .collect();
            // Blanks at the end of the line stay in front of nothing.
            let at = match rest.is_empty() {
                true => end..line_end,
                false => line_end..line_end,
            };
            return (at, text);
        }
        let inline = format!(" {}", lines.join(" "));
        let width = line_end - self.file.line_start(end) + inline.len();
        if width <= WIDTH {
            return (end..end, inline);
        }
        let text: String = lines
            .iter()
            .map(|line| format!("{newline}{indentation}{line}"))
            .collect();
        let code = self.file.text[end..].find(rest).map_or(end, |at| end + at);
        (end..code, format!("{text}{newline}{indentation}"))
    }

    fn braces(
        &self,
        header_end: usize,
        first: usize,
        statement: &Range<usize>,
        end: usize,
        before: &[String],
        lines: &[String],
    ) -> Vec<(Range<usize>, String)> {
        let newline = self.file.newline();
        let outer = self.file.indentation(header_end);
        let is_on_own_line = self.file.line(header_end) != self.file.line(first);
        let inner = match is_on_own_line {
            true => self.file.indentation(statement.start).to_owned(),
            false => format!("{outer}{}", self.file.indentation_unit()),
        };
        let open = match self.file.breaks_before_braces() {
            true => format!("{newline}{outer}{{"),
            false => " {".into(),
        };
        let mut splices = vec![(header_end..header_end, open)];
        if !is_on_own_line {
            let blanks = header_end..first;
            let comment = self.file.text[blanks.clone()].trim();
            let comment = if comment.is_empty() {
                String::new()
            } else {
                format!(" {comment}")
            };
            splices[0].1.push_str(&comment);
            splices[0].1.push_str(&format!("{newline}{inner}"));
            splices[0].0 = blanks;
        }
        for line in before {
            splices.push((statement.start..statement.start, format!("{line}{newline}{inner}")));
        }
        let line_end = self.file.line_end(end);
        let rest = self.file.text[end..line_end].trim_start();
        let body: String = lines.iter().map(|line| format!("{newline}{inner}{line}")).collect();
        let close = format!("{newline}{outer}}}");
        let next = self.file.next_token(end);
        let between = next.map_or("", |next| &self.file.text[end..next.start]);
        let is_do = self.file.text[..header_end].ends_with("do");
        let joins = next.is_some_and(|next| match self.file.token_text(next) {
            "else" => true,
            "while" => is_do,
            _ => false,
        }) && between.trim().is_empty();
        if let Some(next) = next.filter(|_| joins) {
            let gap = match self.file.breaks_before_braces() {
                true => format!("{newline}{outer}"),
                false => " ".into(),
            };
            splices.push((end..next.start, format!("{body}{close}{gap}")));
        } else if rest.is_empty() {
            splices.push((end..line_end, format!("{body}{close}")));
        } else if rest.starts_with("//") || rest.starts_with("/*") {
            splices.push((line_end..line_end, format!("{body}{close}")));
        } else {
            let code = next.map_or(end, |next| next.start);
            splices.push((end..code, format!("{body}{close}{newline}{outer}")));
        }
        splices
    }

    fn at_start_of_body(&self, body: usize, lines: &[String]) -> (Range<usize>, String) {
        let newline = self.file.newline();
        let outer = self.file.indentation(body);
        let inner = format!("{outer}{}", self.file.indentation_unit());
        let text: String = lines.iter().map(|line| format!("{newline}{inner}{line}")).collect();
        let rest = self.file.text[body..self.file.line_end(body)].trim();
        if rest.is_empty() {
            return (body..body, text);
        }
        // `{}` and `{ code; }` on one line.
        let code = body + self.file.text[body..].len() - self.file.text[body..].trim_start().len();
        match rest.starts_with('}') {
            true => (body..code, format!("{text}{newline}{outer}")),
            false => (body..code, format!("{text}{newline}{inner}")),
        }
    }
}

/// The calls, as statements in the style of the file.
pub(crate) fn statements(file: &SourceFile, idiom: &Idiom, after: &After) -> Vec<String> {
    let lines = idiom.statements(after);
    match file.spaces_before_parentheses() {
        true => lines.iter().map(|line| spaced(line)).collect(),
        false => lines,
    }
}

/// `f (x)` instead of `f(x)`.
fn spaced(statement: &str) -> String {
    let statement = statement.replace("sizeof(", "sizeof (").replace("strlen(", "strlen (");
    match statement.split_once('(') {
        Some((name, rest)) if name.ends_with(super::text::is_word_character) => format!("{name} ({rest}"),
        _ => statement,
    }
}
