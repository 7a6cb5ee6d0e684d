//! `crashproof.toml`: rules of the program at hand, and findings that its author has judged. See docs/rules.md. The tests
//! that the file describes, too, are read here, as a type of the caller's: a check does not look at them.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crashproof_finding::{Finding, Frame, Kind, stack::skipped_helpers};
use crashproof_stacks::DeclaredHelpers;
use globset::{Glob, GlobMatcher};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the configuration {} is wrong: {source}see docs/rules.md for what it may hold", path.display())]
    Parse {
        path: PathBuf,
        source: Box<toml::de::Error>,
    },
}

/// `T` is what the caller makes of a `[[test]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, bound = "T: DeserializeOwned")]
pub struct Config<T = IgnoredAny> {
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
    #[serde(default, rename = "ignore")]
    pub ignores: Vec<Ignore>,
    #[serde(default, rename = "helper")]
    pub helpers: Vec<Helper>,
    #[serde(default = "Vec::new", rename = "test")]
    pub tests: Vec<T>,
    #[serde(default)]
    pub repair: RepairCommands,
}

/// `[repair]`: what `crashproof repair` takes for commands that it is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepairCommands {
    pub build: Option<String>,
    pub test: Option<String>,
    pub setup: Option<String>,
}

impl<T> Default for Config<T> {
    fn default() -> Self {
        Config {
            rules: Vec::new(),
            ignores: Vec::new(),
            helpers: Vec::new(),
            tests: Vec::new(),
            repair: RepairCommands::default(),
        }
    }
}

/// Whose findings an `[[ignore]]` is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Analysis {
    Check,
    Crash,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// Every store that `before` selects is persistent when a later one that `after` selects is made; within an operation, one that
    /// `after` selects does not come before the first that `before` selects.
    MustPersistBefore {
        before: Selector,
        after: Selector,
        #[serde(default)]
        operations: RuleOperations,
    },
    /// Every store that `stores` selects is made in a transaction of its thread.
    MustBeInTransaction { stores: Selector },
}

/// What the operations of a program are, for a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleOperations {
    /// From `CRASHPROOF_OP_BEGIN` to `CRASHPROOF_OP_END`.
    #[default]
    Annotated,
    /// The program is a driver: each line that it prints ends one.
    Lines,
}

/// A function that only does to its parameters what its caller asked for: all given fields match it.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawHelper")]
pub struct Helper {
    function: Option<Pattern>,
    file: Option<PathPattern>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHelper {
    function: Option<Pattern>,
    file: Option<PathPattern>,
}

impl TryFrom<RawHelper> for Helper {
    type Error = &'static str;

    fn try_from(raw: RawHelper) -> Result<Self, Self::Error> {
        let RawHelper { function, file } = raw;
        if function.is_none() && file.is_none() {
            return Err("a [[helper]] needs at least one of `function` and `file`");
        }
        Ok(Helper { function, file })
    }
}

impl Helper {
    fn matches(&self, function: &str, file: Option<&str>) -> bool {
        self.function.as_ref().is_none_or(|p| p.matches_function(function))
            && self.file.as_ref().is_none_or(|p| file.is_some_and(|f| p.matches(f)))
    }
}

/// Findings to leave out: those that all given fields match.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawIgnore")]
pub struct Ignore {
    pub kind: Option<Kind>,
    pub function: Option<Pattern>,
    pub file: Option<PathPattern>,
    pub stack: Option<StackPattern>,
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawIgnore {
    kind: Option<Kind>,
    function: Option<Pattern>,
    file: Option<PathPattern>,
    stack: Option<StackPattern>,
    reason: String,
}

impl TryFrom<RawIgnore> for Ignore {
    type Error = &'static str;

    fn try_from(raw: RawIgnore) -> Result<Self, Self::Error> {
        let RawIgnore {
            kind,
            function,
            file,
            stack,
            reason,
        } = raw;
        if kind.is_none() && function.is_none() && file.is_none() && stack.is_none() {
            return Err("an [[ignore]] needs at least one of `kind`, `function`, `file` and `stack`");
        }
        if reason.trim().is_empty() {
            return Err("the `reason` of an [[ignore]] is empty: say why, for the next reader");
        }
        Ok(Ignore {
            kind,
            function,
            file,
            stack,
            reason,
        })
    }
}

impl Ignore {
    /// The function and the file are those of the finding's place, or of a helper that was called there.
    pub fn matches(&self, finding: &Finding) -> bool {
        let is_at = |function: Option<&str>, file: Option<&str>| {
            self.function
                .as_ref()
                .is_none_or(|p| function.is_some_and(|f| p.matches_function(f)))
                && self.file.as_ref().is_none_or(|p| file.is_some_and(|f| p.matches(f)))
        };
        let is_in_helper = || {
            let mut helpers = skipped_helpers(&finding.stack);
            helpers.any(|helper| is_at(helper.function.as_deref(), helper.file.as_deref()))
        };
        self.kind.is_none_or(|kind| kind == finding.kind)
            && (is_at(finding.function.as_deref(), finding.file.as_deref()) || is_in_helper())
            && self.stack.as_ref().is_none_or(|p| p.matches(&finding.stack))
    }

    /// Whether it is this analysis that has to come up with a finding for it. Without a kind it may be meant for either, and
    /// `check` is the one that everybody runs.
    fn is_due_in(&self, analysis: Analysis) -> bool {
        let crash = self.kind.is_some_and(|kind| kind.name().starts_with("crash-"));
        crash == (analysis == Analysis::Crash)
    }

    /// As a user would name it.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        if let Some(kind) = self.kind {
            parts.push(format!("kind \"{kind}\""));
        }
        if let Some(function) = &self.function {
            parts.push(format!("function \"{}\"", function.0.glob()));
        }
        if let Some(file) = &self.file {
            parts.push(format!("file \"{}\"", file.text));
        }
        if let Some(stack) = &self.stack {
            parts.push(format!("stack [{}]", stack.text));
        }
        parts.join(", ")
    }
}

/// A glob on a function's name.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(GlobMatcher);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(Pattern(glob(&text)?))
    }
}

impl Pattern {
    /// With or without the parameters that a C++ name carries.
    pub fn matches_function(&self, name: &str) -> bool {
        self.0.is_match(name) || name.split_once('(').is_some_and(|(bare, _)| self.0.is_match(bare))
    }
}

/// Globs on the functions of a call path, innermost first, as in a suppression of Valgrind: `...` stands for any number of frames,
/// and what is further out is not looked at.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct StackPattern {
    text: String,
    /// `None`: `...`.
    frames: Vec<Option<Pattern>>,
}

impl TryFrom<Vec<String>> for StackPattern {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        if texts.iter().all(|text| text == "...") {
            return Err("`stack` names no function: write the call path, innermost first, as in [\"memcpy\", \"...\", \"main\"]".into());
        }
        let frame = |text: &String| match text.as_str() {
            "..." => Ok(None),
            _ => Pattern::try_from(text.clone()).map(Some),
        };
        let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
        Ok(StackPattern {
            frames: texts.iter().map(frame).collect::<Result<_, String>>()?,
            text: quoted.join(", "),
        })
    }
}

impl StackPattern {
    pub fn matches(&self, stack: &[Frame]) -> bool {
        // Which ends of the pattern's part so far fit the frames so far, as for a glob: linear in both.
        let mut open = vec![false; self.frames.len() + 1];
        open[0] = true;
        let skip = |open: &mut Vec<bool>| {
            for index in 0..self.frames.len() {
                open[index + 1] |= open[index] && self.frames[index].is_none();
            }
        };
        skip(&mut open);
        for frame in stack {
            if open[self.frames.len()] {
                break;
            }
            let mut next = vec![false; open.len()];
            for (index, pattern) in self.frames.iter().enumerate().filter(|(index, _)| open[*index]) {
                match pattern {
                    None => next[index] = true,
                    Some(pattern) => {
                        let name = frame.function.as_deref();
                        next[index + 1] |= name.is_some_and(|name| pattern.matches_function(name));
                    }
                }
            }
            open = next;
            skip(&mut open);
        }
        open[self.frames.len()]
    }
}

/// A glob on a path: the whole of it, or its last components.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct PathPattern {
    text: String,
    whole: GlobMatcher,
    end: GlobMatcher,
}

impl TryFrom<String> for PathPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(PathPattern {
            whole: glob(&text)?,
            end: glob(&format!("**/{text}"))?,
            text,
        })
    }
}

impl PathPattern {
    pub fn matches(&self, path: &str) -> bool {
        self.whole.is_match(path) || self.end.is_match(path)
    }
}

fn glob(text: &str) -> Result<GlobMatcher, String> {
    Glob::new(text)
        .map(|glob| glob.compile_matcher())
        .map_err(|error| format!("bad pattern `{text}`: {}", error.kind()))
}

/// Which stores a rule speaks of.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Selector {
    text: String,
    pub selects: Box<Selects>,
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Clone, Debug)]
pub enum Selects {
    /// Made in a function, or in one that it calls.
    Function(Pattern),
    /// Made by code of these source lines, or called from there.
    Source {
        file: PathPattern,
        lines: RangeInclusive<u32>,
    },
    /// To these bytes of a PM file.
    Pm {
        file: PathPattern,
        bytes: RangeInclusive<u64>,
    },
}

impl TryFrom<String> for Selector {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(Selector {
            selects: Box::new(parse_selector(&text)?),
            text,
        })
    }
}

fn parse_selector(text: &str) -> Result<Selects, String> {
    if let Some((file, bytes)) = text.rsplit_once('@') {
        let bytes = parse_range(bytes).ok_or_else(|| {
            format!("bad bytes `{bytes}` in selector `{text}`: write `FILE@FIRST-LAST`, as in `data.pm@0x40-0x7f`")
        })?;
        return Ok(Selects::Pm {
            file: file.to_owned().try_into()?,
            bytes,
        });
    }
    if let Some((file, lines)) = text.rsplit_once(':')
        && let Some(lines) = parse_range(lines)
    {
        let line = |n| u32::try_from(n).map_err(|_| format!("line number {n} in selector `{text}` is too large"));
        let lines = line(*lines.start())?..=line(*lines.end())?;
        return Ok(Selects::Source {
            file: file.to_owned().try_into()?,
            lines,
        });
    }
    if text.is_empty() {
        return Err("a selector is empty: write a function, `FILE:LINE-LINE` or `FILE@FIRST-LAST`".to_owned());
    }
    Ok(Selects::Function(text.to_owned().try_into()?))
}

/// `N` or `N-M`, decimal or 0x.
fn parse_range(text: &str) -> Option<RangeInclusive<u64>> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = number(first)?..=number(last)?;
    (!range.is_empty()).then_some(range)
}

impl<T: DeserializeOwned> Config<T> {
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_path_buf(),
            source,
        })?;
        Config::parse(&text, path)
    }

    /// `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|source| ConfigError::Parse {
            path: path.to_path_buf(),
            source: Box::new(source),
        })
    }
}

impl<T> Config<T> {
    /// What `[[helper]]` declares.
    pub fn declared_helpers(&self) -> DeclaredHelpers {
        if self.helpers.is_empty() {
            return DeclaredHelpers::default();
        }
        let helpers = self.helpers.clone();
        DeclaredHelpers::new(move |function, file| helpers.iter().any(|helper| helper.matches(function, file)))
    }

    /// Drops the findings that an `[[ignore]]` matches; says which entries should have matched one of this analysis and did
    /// not.
    pub fn apply_ignores(&self, findings: &mut Vec<Finding>, analysis: Analysis) -> Vec<String> {
        let mut used = vec![false; self.ignores.len()];
        findings.retain(|finding| {
            let mut keep = true;
            for (ignore, used) in self.ignores.iter().zip(&mut used) {
                if ignore.matches(finding) {
                    *used = true;
                    keep = false;
                }
            }
            keep
        });
        let unused = self.ignores.iter().zip(used).filter(|(_, used)| !used);
        unused
            .filter(|(ignore, _)| ignore.is_due_in(analysis))
            .map(|(ignore, _)| {
                format!(
                    "an [[ignore]] of crashproof.toml matches no finding: {}",
                    ignore.describe()
                )
            })
            .collect()
    }

    /// For those who do not look at tests.
    pub fn without_tests(self) -> Config {
        Config {
            rules: self.rules,
            ignores: self.ignores,
            helpers: self.helpers,
            tests: Vec::new(),
            repair: RepairCommands::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::<IgnoredAny>::parse(text, Path::new("crashproof.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_and_ignores() {
        let config = parse(
            r#"
            [[rule]]
            kind = "must-persist-before"
            before = "log_append*"
            after = "log.c:10-20"

            [[rule]]
            kind = "must-be-in-transaction"
            stores = "pool*@0x40-0x7f"

            [[ignore]]
            kind = "redundant-flush"
            function = "legacy::*"
            file = "src/*.c"
            reason = "kept for old machines"
            "#,
        )
        .unwrap();
        let [
            Rule::MustPersistBefore { before, after, .. },
            Rule::MustBeInTransaction { stores },
        ] = &config.rules[..]
        else {
            panic!("{config:?}");
        };
        assert!(matches!(&*before.selects, Selects::Function(p) if p.matches_function("log_append_entry")));
        assert!(
            matches!(&*after.selects, Selects::Source { file, lines } if file.matches("/x/log.c") && *lines == (10..=20))
        );
        assert!(
            matches!(&*stores.selects, Selects::Pm { file, bytes } if file.matches("/mnt/pool1") && *bytes == (0x40..=0x7f))
        );
        let ignore = &config.ignores[0];
        assert_eq!(
            ignore.describe(),
            r#"kind "redundant-flush", function "legacy::*", file "src/*.c""#
        );
        assert!(ignore.function.as_ref().unwrap().matches_function("legacy::put(int)"));
        assert!(ignore.file.as_ref().unwrap().matches("/home/x/src/a.c"));
    }

    #[test]
    fn stacks_of_ignores() {
        let stack: Vec<Frame> = ["memcpy", "put(int)", "apply", "main"]
            .map(|name| Frame {
                function: Some(name.to_owned()),
                ..Frame::default()
            })
            .to_vec();
        let matches = |pattern: &str| {
            let config = parse(&format!("[[ignore]]\nstack = {pattern}\nreason = \"x\"\n")).unwrap();
            config.ignores[0].stack.as_ref().unwrap().matches(&stack)
        };
        for pattern in [
            r#"["memcpy"]"#,
            r#"["mem*", "put", "apply", "main"]"#,
            r#"["...", "apply"]"#,
            r#"["memcpy", "...", "main"]"#,
            r#"["...", "put", "...", "...", "main", "..."]"#,
        ] {
            assert!(matches(pattern), "{pattern}");
        }
        for pattern in [
            r#"["put"]"#,
            r#"["memcpy", "apply"]"#,
            r#"["...", "main", "apply"]"#,
            r#"["memcpy", "put", "apply", "main", "_start"]"#,
        ] {
            assert!(!matches(pattern), "{pattern}");
        }
        for (text, word) in [
            ("stack = []\nreason = \"x\"", "names no function"),
            ("stack = [\"...\"]\nreason = \"x\"", "names no function"),
            ("stack = [\"a{\"]\nreason = \"x\"", "bad pattern"),
            ("stack = [\"a\"]\nreason = \" \"", "say why"),
            ("stack = [\"a\"]", "reason"),
        ] {
            let error = parse(&format!("[[ignore]]\n{text}\n")).unwrap_err();
            assert!(error.contains(word) && error.contains("line"), "{text}: {error}");
        }
    }

    #[test]
    fn helpers() {
        let config = parse("[[helper]]\nfunction = \"pm_*\"\n[[helper]]\nfile = \"ptr.hpp\"\n").unwrap();
        let is_helper = |function: &str, file: &str| config.helpers.iter().any(|h| h.matches(function, Some(file)));
        assert!(is_helper("pm_flush", "/x/a.c") && is_helper("pm_set<int>(int*)", "a.c"));
        assert!(is_helper("ptr<int>::operator=(int)", "/x/ptr.hpp") && !is_helper("put", "/x/a.c"));
        let error = parse("[[helper]]\n").unwrap_err();
        assert!(error.contains("at least one"), "{error}");
        assert!(parse("[[helper]]\nname = \"x\"\n").unwrap_err().contains("name"));
    }

    #[test]
    fn errors_name_the_line() {
        let error = parse("[[ignore]]\nkind = \"no-such-kind\"\nreason = \"\"\n").unwrap_err();
        assert!(error.contains("line") && error.contains("no-such-kind"), "{error}");
        let error = parse("[[ignore]]\nreason = \"x\"\n").unwrap_err();
        assert!(error.contains("at least one"), "{error}");
        let error = parse("[[rule]]\nkind = \"must-persist-before\"\nbefore = \"f@x\"\nafter = \"g\"\n").unwrap_err();
        assert!(error.contains("FILE@FIRST-LAST") && error.contains("line"), "{error}");
        let error = parse("[[rule]]\nkind = \"must-persist-before\"\nbefore = \"f\"\n").unwrap_err();
        assert!(error.contains("after"), "{error}");
        let error = parse("[[rules]]\n").unwrap_err();
        assert!(error.contains("rules"), "{error}");
        assert!(
            parse("[[ignore]]\nfunction = \"a{\"\nreason = \"x\"")
                .unwrap_err()
                .contains("bad pattern")
        );
    }
}
