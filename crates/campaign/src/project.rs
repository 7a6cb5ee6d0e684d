//! The tests of a project, as `crashproof.toml` describes them: docs/test.md.
//!
//! The keys of a `[[test]]` are the long options of `crashproof crash`, with the same meaning and the same defaults: a test is
//! turned into the command lines that one would type, and those are run.

use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;
use std::num::{NonZeroU16, NonZeroU64};
use std::path::Path;
use std::str::FromStr;

use clap::ValueEnum;
use crashproof_check::{Config, ConfigError};
use serde::Deserialize;

use crate::options::{Durability, Model, Oracle, Strategy, SuffixLength, Switch};
use crate::shell;
use crate::units::{Size, Time};

pub const DEFAULT_FILE: &str = "crashproof.toml";
/// Where crash tests save failing images.
pub const DEFAULT_SAVE: &str = "crashproof-crashes";

/// The file that is named, or the one in the current folder if there is one.
pub fn load(path: Option<&Path>) -> Result<Config<Test>, ConfigError> {
    match path {
        Some(path) => Config::load(path),
        None if Path::new(DEFAULT_FILE).exists() => Config::load(Path::new(DEFAULT_FILE)),
        None => Ok(Config::default()),
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Test {
    pub name: Option<String>,
    pub program: Program,
    #[serde(default)]
    pub pm: Vec<String>,
    pub setup: Option<String>,
    pub recover: Option<String>,
    pub check: Option<String>,
    pub expect_output: Option<String>,
    pub oracle: Option<Oracle>,
    pub ops: Option<String>,
    pub suffix: Option<Text<SuffixLength>>,
    pub criterion: Option<Text<Durability>>,
    #[serde(default)]
    pub crash_creation: bool,
    #[serde(default)]
    pub performance: bool,
    pub strategy: Option<Strategy>,
    pub dependences: Option<String>,
    #[serde(default)]
    pub no_joint: bool,
    pub seed: Option<u64>,
    pub from: Option<String>,
    pub until: Option<String>,
    pub depth: Option<Depth>,
    pub model: Option<Model>,
    #[serde(default)]
    pub no_tear: bool,
    #[serde(default)]
    pub reorder_in_line: bool,
    pub time: Option<Time>,
    pub max_states: Option<NonZeroU64>,
    pub jobs: Option<NonZeroU16>,
    pub timeout: Option<Time>,
    pub memory: Option<Size>,
    pub disk: Option<Size>,
    #[serde(default)]
    pub no_server: bool,
    pub save: Option<String>,
    /// For both; without it each command has its own default.
    pub client_requests: Option<Switch>,
    #[serde(default)]
    pub locked_rmw: bool,
    #[serde(default)]
    pub allow_failure: bool,
    #[serde(default)]
    pub allow_no_stores: bool,
}

/// The value of an option that is a `T`, as the user wrote it.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawText", bound = "T: FromStr<Err = String>")]
pub struct Text<T> {
    text: String,
    is: PhantomData<T>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a string, or a number")]
enum RawText {
    Number(u64),
    Text(String),
}

impl<T: FromStr<Err = String>> TryFrom<RawText> for Text<T> {
    type Error = String;

    fn try_from(raw: RawText) -> Result<Self, String> {
        let text = match raw {
            RawText::Number(number) => number.to_string(),
            RawText::Text(text) => text,
        };
        T::from_str(&text)?;
        Ok(Text { text, is: PhantomData })
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u32")]
pub struct Depth(u32);

impl TryFrom<u32> for Depth {
    type Error = &'static str;

    fn try_from(depth: u32) -> Result<Self, &'static str> {
        match depth {
            1 | 2 => Ok(Depth(depth)),
            _ => Err("`depth` is 1 (crash the program) or 2 (crash its recovery, too)"),
        }
    }
}

/// The program and its arguments: a list, or a string that needs no shell to be split.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawProgram")]
pub struct Program(pub Vec<String>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "`program` is a string, or a list of strings")]
enum RawProgram {
    Text(String),
    Words(Vec<String>),
}

impl TryFrom<RawProgram> for Program {
    type Error = String;

    fn try_from(raw: RawProgram) -> Result<Self, String> {
        let words = match raw {
            RawProgram::Words(words) => words,
            RawProgram::Text(text) => {
                let words = shell_words::split(&text)
                    .map_err(|_| format!("`program` has a quotation mark that nothing closes: {text}"))?;
                if words.first().is_some_and(|first| shell::needs_shell(&text, first)) {
                    return Err(format!(
                        "`program` is started without a shell, and this needs one: write program = [\"sh\", \"-c\", {text:?}]"
                    ));
                }
                words
            }
        };
        if words.is_empty() {
            return Err("`program` is empty: give the program and its arguments".to_owned());
        }
        Ok(Program(words))
    }
}

impl Test {
    /// As the user knows it.
    pub fn title(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => shell_words::join(&self.program.0),
        }
    }

    /// `check` and what follows it on the command line. `driver` is what it runs, if that is not the program as it stands here.
    pub fn check_command(&self, config: &Path, driver: Option<&[OsString]>) -> Vec<OsString> {
        let mut line = Line::new("check", config);
        line.option("--model", self.model.as_ref().map(name_of));
        self.recording(&mut line);
        match driver {
            Some(driver) => line.program(driver),
            None => line.program(&self.program.0),
        }
    }

    /// Whether its crash test shows which data is transient, which its check then knows.
    pub fn shows_transient_data(&self) -> bool {
        self.oracle.is_some() && self.performance
    }

    /// Whether it has a key that only a crash test has a use for.
    fn is_crashed(&self) -> bool {
        let texts = [&self.recover, &self.ops];
        let judged = self.oracle.is_some() || self.suffix.is_some() || self.criterion.is_some();
        texts.into_iter().any(Option::is_some) || judged || self.crash_creation || self.performance
    }

    /// Where failing images go: a folder of the test's own.
    fn save(&self, number: usize) -> String {
        if let Some(save) = &self.save {
            return save.clone();
        }
        let plain = |c: char| c.is_alphanumeric() || "-_.+".contains(c);
        let name = self
            .name
            .as_ref()
            .filter(|name| name.chars().all(plain) && !name.starts_with('.'));
        let folder = name.cloned().unwrap_or_else(|| format!("test-{number}"));
        format!("{DEFAULT_SAVE}/{folder}")
    }

    /// `crash` and what follows it, for the test of this number; none if it has neither a recovery nor an oracle.
    pub fn crash_command(&self, config: &Path, number: usize) -> Option<Vec<OsString>> {
        if !self.is_crashed() {
            return None;
        }
        let mut line = Line::new("crash", config);
        line.option("--oracle", self.oracle.as_ref().map(name_of));
        line.option("--ops", self.ops.as_ref());
        line.option("--suffix", self.suffix.as_ref().map(|suffix| &suffix.text));
        line.option("--criterion", self.criterion.as_ref().map(|criterion| &criterion.text));
        line.switch("--crash-creation", self.crash_creation);
        line.switch("--performance", self.performance);
        line.option("--recover", self.recover.as_ref());
        line.option("--setup", self.setup.as_ref());
        line.option("--check", self.check.as_ref());
        line.option("--expect-output", self.expect_output.as_ref());
        line.option("--strategy", self.strategy.as_ref().map(name_of));
        line.option("--dependences", self.dependences.as_ref());
        line.switch("--no-joint", self.no_joint);
        line.option("--seed", self.seed);
        line.option("--from", self.from.as_ref());
        line.option("--until", self.until.as_ref());
        line.option("--depth", self.depth.as_ref().map(|depth| depth.0));
        line.option("--model", self.model.as_ref().map(name_of));
        line.switch("--no-tear", self.no_tear);
        line.switch("--reorder-in-line", self.reorder_in_line);
        line.option("--time", self.time);
        line.option("--max-states", self.max_states);
        line.option("--jobs", self.jobs);
        line.option("--timeout", self.timeout);
        line.option("--memory", self.memory);
        line.option("--disk", self.disk);
        line.switch("--no-server", self.no_server);
        line.option("--save", Some(self.save(number)));
        self.recording(&mut line);
        Some(line.program(&self.program.0))
    }

    fn recording(&self, line: &mut Line) {
        for pattern in &self.pm {
            line.option("--pm", Some(pattern));
        }
        line.option("--client-requests", self.client_requests.as_ref().map(name_of));
        line.switch("--locked-rmw", self.locked_rmw);
        line.switch("--allow-failure", self.allow_failure);
        line.switch("--allow-no-stores", self.allow_no_stores);
    }
}

/// A command line in the making.
struct Line(Vec<OsString>);

impl Line {
    fn new(command: &str, config: &Path) -> Line {
        let mut line = Line(vec![command.into()]);
        if config != Path::new(DEFAULT_FILE) {
            line.0.extend(["--config".into(), config.into()]);
        }
        line
    }

    fn option(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        let Some(value) = value.map(|value| value.to_string()) else {
            return;
        };
        // A value that begins with a dash would pass for an option.
        match value.starts_with('-') {
            true => self.0.push(format!("{name}={value}").into()),
            false => self.0.extend([name.into(), value.into()]),
        }
    }

    fn switch(&mut self, name: &str, on: bool) {
        self.0.extend(on.then(|| name.into()));
    }

    fn program(mut self, program: &[impl AsRef<OsStr>]) -> Vec<OsString> {
        self.0.push("--".into());
        self.0.extend(program.iter().map(OsString::from));
        self.0
    }
}

fn name_of(value: &impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CrashOptions;
    use clap::Parser;
    use crashproof_crash::oracle::{Criterion, Suffix};

    /// `crash` is the first word.
    #[derive(Debug, Parser)]
    struct CommandLine {
        #[command(flatten)]
        options: CrashOptions,
    }

    fn parse(text: &str) -> Result<Config<Test>, String> {
        Config::parse(text, Path::new("crashproof.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_reaches_the_command_line() {
        let config = parse(
            r#"
            [[test]]
            name = "append"
            program = "./app --load 'my pool'"
            pm = ["a.pm", "b.pm"]
            setup = "./app --create pool"
            recover = "-x"
            check = "./verify pool"
            expect-output = "golden"
            strategy = "prefix"
            seed = 7
            from = "f"
            until = "g"
            depth = 2
            model = "eadr"
            no-tear = true
            reorder-in-line = true
            time = "1h30m"
            max-states = 10
            jobs = 3
            timeout = "5s"
            memory = "64M"
            disk = "1500K"
            no-server = true
            save = "crashes"
            client-requests = "on"
            locked-rmw = true
            allow-failure = true
            allow-no-stores = true
            "#,
        )
        .unwrap();
        let test = &config.tests[0];
        let crash = CommandLine::parse_from(test.crash_command(Path::new("other.toml"), 1).unwrap()).options;
        assert_eq!(crash.command, ["./app", "--load", "my pool"]);
        assert_eq!(crash.recording.pm, ["a.pm", "b.pm"]);
        assert_eq!(crash.setup.as_deref(), Some("./app --create pool"));
        assert_eq!(crash.recover.as_deref(), Some("-x"));
        assert_eq!(crash.check.as_deref(), Some("./verify pool"));
        assert_eq!(crash.expect_output.as_deref(), Some(Path::new("golden")));
        assert_eq!((crash.strategy(), crash.seed, crash.depth), (Strategy::Prefix, 7, 2));
        assert_eq!((crash.from.as_deref(), crash.until.as_deref()), (Some("f"), Some("g")));
        assert_eq!(crash.model, Model::Eadr);
        assert!(crash.no_tear && crash.reorder_in_line && crash.no_server && crash.recording.locked_rmw);
        assert_eq!(crash.time.unwrap().0.as_secs(), 5400);
        assert_eq!((crash.max_states, crash.jobs), (Some(10), Some(3)));
        assert_eq!(crash.timeout.unwrap().0.as_secs(), 5);
        assert_eq!(
            (crash.memory, crash.disk),
            (Some(Size(64 << 20)), Some(Size(1500 << 10)))
        );
        assert_eq!(crash.save, Path::new("crashes"));
        assert_eq!(crash.config.as_deref(), Some(Path::new("other.toml")));
        assert_eq!(crash.recording.client_requests, Switch::On);
        assert!(crash.allowances.allow_failure && crash.allowances.allow_no_stores);
        let check = "check --model eadr --pm a.pm --pm b.pm --client-requests on --locked-rmw --allow-failure --allow-no-stores -- ./app \
                     --load";
        let words: Vec<OsString> = check.split_whitespace().map(OsString::from).collect();
        assert_eq!(
            test.check_command(Path::new(DEFAULT_FILE), None),
            [words, vec!["my pool".into()]].concat()
        );
    }

    #[test]
    fn every_key_of_a_driver_reaches_the_command_line() {
        let parse = |suffix: &str| {
            let text = r#"
            [[test]]
            program = "./driver pool"
            oracle = "output"
            ops = "a.ops"
            criterion = "buffered=8,sync"
            crash-creation = true
            performance = true
            strategy = "conditions"
            dependences = "d.trace"
            "#;
            parse(&format!("{text}suffix = {suffix}\n"))
        };
        for (suffix, length) in [("7", Suffix::Operations(7)), ("\"all\"", Suffix::All)] {
            let test = &parse(suffix).unwrap().tests[0];
            let command = test.crash_command(Path::new(DEFAULT_FILE), 1).unwrap();
            let crash = CommandLine::parse_from(command).options;
            assert_eq!(crash.oracle, Some(Oracle::Output));
            assert_eq!(crash.ops.as_deref(), Some(Path::new("a.ops")));
            assert_eq!(crash.suffix.0, length);
            let sync = Some("sync".to_owned());
            assert_eq!(crash.criterion.0, Criterion::Buffered { operations: 8, sync });
            assert!(crash.crash_creation && crash.performance && test.shows_transient_data());
            assert_eq!(crash.dependences.as_deref(), Some(Path::new("d.trace")));
        }
        let check = parse("7").unwrap().tests[0].check_command(Path::new(DEFAULT_FILE), Some(&["./driver".into()]));
        assert_eq!(check, ["check", "--", "./driver"]);
        // A key that needs another one is not passed over.
        for key in [
            "ops = \"a.ops\"",
            "performance = true",
            "criterion = \"durable\"",
            "suffix = 1",
        ] {
            let config = super::tests::parse(&format!("[[test]]\nprogram = \"./app\"\n{key}\n")).unwrap();
            let command = config.tests[0].crash_command(Path::new(DEFAULT_FILE), 1).unwrap();
            assert!(CommandLine::try_parse_from(command).is_err(), "{key}");
        }
    }

    #[test]
    fn little_is_enough() {
        let config = parse("[[test]]\nprogram = [\"./app\", \"a b\"]\n").unwrap();
        assert_eq!(config.tests[0].title(), "./app 'a b'");
        assert_eq!(config.tests[0].crash_command(Path::new(DEFAULT_FILE), 1), None);
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, word) in [
            ("program = \"./app\"\nrecovery = \"x\"", "recovery"),
            ("program = \"./app\"\ntime = \"10\"", "is not a time"),
            ("program = \"./app\"\ndepth = 3", "recovery, too"),
            ("program = \"./app\"\njobs = 0", "nonzero"),
            ("program = \"./app\"\nsuffix = \"few\"", "a number of operations"),
            ("program = \"./app\"\ncriterion = \"buffered\"", "buffered=D"),
            ("program = \"./app\"\noracle = \"input\"", "output"),
            ("program = \"./app\"\nmemory = \"10X\"", "is not a size"),
            ("program = \"./app\"\nstrategy = \"fast\"", "fast"),
            ("name = \"x\"\nprogram = \"a | b\"", "started without a shell"),
            ("name = \"x\"\nprogram = 7", "string"),
            ("name = \"x\"\nprogram = \"\"", "empty"),
        ] {
            let error = parse(&format!("[[test]]\n{text}\n")).unwrap_err();
            assert!(error.contains(word) && error.contains("line 3"), "{text}: {error}");
        }
        assert!(parse("[[test]]\nname = \"x\"\n").unwrap_err().contains("program"));
    }
}
