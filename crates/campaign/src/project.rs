//! The tests of a project, as `crashproof.toml` describes them: docs/test.md.
//!
//! The keys of a `[[test]]` are the long options of `crashproof crash`, with the same meaning and the same defaults: a test is
//! turned into the command lines that one would type, and those are run.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, Command};
use crashproof_check::{Config, ConfigError};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};

use crate::options::{CrashOptions, OUTPUT, RecordingOptions, RunAllowances};
use crate::shell;

pub const DEFAULT_FILE: &str = "crashproof.toml";
/// Where crash tests save failing images.
pub const DEFAULT_SAVE: &str = "crashproof-crashes";

/// The file that is named, or the one in the current folder if there is one.
pub fn load(path: Option<&Path>) -> Result<Config<Test>, ConfigError> {
    load_in(Path::new(""), path)
}

/// The same in another folder.
pub fn load_in(folder: &Path, path: Option<&Path>) -> Result<Config<Test>, ConfigError> {
    let default = folder.join(DEFAULT_FILE);
    match path {
        Some(path) => Config::load(&folder.join(path)),
        None if default.exists() => Config::load(&default),
        None => Ok(Config::default()),
    }
}

/// Options of `crashproof crash` that are no keys: they are about one run of the command, or about this file.
const NO_KEYS: [&str; 4] = ["fail-fast", "resume", "config", "keep-trace"];

/// A `[[test]]`: the program, and options of `crashproof crash` as they are written on the command line.
#[derive(Clone, Debug)]
pub struct Test {
    pub name: Option<String>,
    pub program: Program,
    options: BTreeMap<String, Value>,
}

/// What a key is set to.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a string, a number, `true`, `false`, or a list of strings")]
enum Value {
    Switch(bool),
    Number(u64),
    Text(String),
    List(Vec<String>),
}

impl Value {
    /// The option in words of the command line; none for a switch that is off.
    fn words(&self, name: &str) -> Vec<String> {
        let option = |value: &dyn fmt::Display| match value.to_string() {
            // A value that begins with a dash would pass for an option.
            value if value.starts_with('-') => vec![format!("--{name}={value}")],
            value => vec![format!("--{name}"), value],
        };
        match self {
            Value::Switch(on) => on.then(|| format!("--{name}")).into_iter().collect(),
            Value::Number(number) => option(number),
            Value::Text(text) => option(text),
            Value::List(list) => list.iter().flat_map(|text| option(text)).collect(),
        }
    }
}

/// The options that these arguments declare, in their order, by their long names.
fn declared<T: Args>() -> Vec<Arg> {
    let command = T::augment_args(Command::new("crash"));
    let options = command.get_arguments().filter(|option| option.get_long().is_some());
    options.cloned().collect()
}

/// The keys beside `name` and `program`, in the order in which commands are shown.
fn keys() -> Vec<Arg> {
    let mut keys = declared::<CrashOptions>();
    keys.retain(|key| key.get_long().is_none_or(|name| !NO_KEYS.contains(&name)));
    let recording = [declared::<RecordingOptions>(), declared::<RunAllowances>()].concat();
    let of_recording = |key: &Arg| recording.iter().position(|option| option.get_id() == key.get_id());
    keys.sort_by_key(|key| (of_recording(key), key.get_help_heading() != Some(OUTPUT)));
    keys
}

fn long(option: &Arg) -> &str {
    option.get_long().unwrap_or_default()
}

/// That the option takes this value, whatever else it needs.
fn check_value(key: &Arg, value: &Value) -> Result<(), String> {
    let name = long(key);
    let takes = match key.get_action() {
        ArgAction::SetTrue => "true or false",
        ArgAction::Append => "a list of strings",
        _ => "a string or a number",
    };
    let fits = match value {
        Value::Switch(_) => matches!(key.get_action(), ArgAction::SetTrue),
        Value::List(_) => matches!(key.get_action(), ArgAction::Append),
        Value::Number(_) | Value::Text(_) => matches!(key.get_action(), ArgAction::Set),
    };
    if !fits {
        return Err(format!("`{name}` is {takes}"));
    }
    let command = CrashOptions::augment_args(Command::new("crash")).no_binary_name(true);
    match command.try_get_matches_from(value.words(name)) {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) => {
            Err(in_one_line(&error))
        }
        _ => Ok(()),
    }
}

/// What a command line that is wrong says, without usage and hints.
pub fn in_one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let message = text.split("\n\n").next().unwrap_or_default();
    let message = message.trim_start_matches("error: ");
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl<'de> Deserialize<'de> for Test {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TestVisitor)
    }
}

struct TestVisitor;

impl<'de> Visitor<'de> for TestVisitor {
    type Value = Test;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a test")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Test, A::Error> {
        let keys = keys();
        let (mut name, mut program, mut options) = (None, None, BTreeMap::new());
        while let Some(key) = map.next_key_seed(Key(&keys))? {
            match key {
                Known::Name => name = Some(map.next_value()?),
                Known::Program => program = Some(map.next_value()?),
                Known::Option(key) => {
                    options.insert(long(key).to_owned(), map.next_value_seed(OptionValue(key))?);
                }
            }
        }
        Ok(Test {
            name,
            program: program.ok_or_else(|| A::Error::missing_field("program"))?,
            options,
        })
    }
}

/// A key, which is known; a mistake is reported where it is in the file.
struct Key<'a>(&'a [Arg]);

enum Known<'a> {
    Name,
    Program,
    Option(&'a Arg),
}

impl<'de, 'a> DeserializeSeed<'de> for Key<'a> {
    type Value = Known<'a>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Known<'a>, D::Error> {
        let key = String::deserialize(deserializer)?;
        match (key.as_str(), self.0.iter().find(|option| long(option) == key)) {
            ("name", _) => Ok(Known::Name),
            ("program", _) => Ok(Known::Program),
            (_, Some(option)) => Ok(Known::Option(option)),
            (_, None) => {
                let known: Vec<String> = ["name", "program"]
                    .into_iter()
                    .chain(self.0.iter().map(long))
                    .map(|key| format!("`{key}`"))
                    .collect();
                Err(D::Error::custom(format_args!(
                    "unknown field `{key}`, expected one of {}",
                    known.join(", ")
                )))
            }
        }
    }
}

/// What an option is set to.
struct OptionValue<'a>(&'a Arg);

impl<'de> DeserializeSeed<'de> for OptionValue<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let value = Value::deserialize(deserializer)?;
        check_value(self.0, &value).map_err(D::Error::custom)?;
        Ok(value)
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

    /// The text of an option, if it is set.
    pub fn text(&self, option: &str) -> Option<&str> {
        match self.options.get(option)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The texts of an option that may be given several times.
    pub fn list(&self, option: &str) -> Vec<String> {
        match self.options.get(option) {
            Some(Value::List(list)) => list.clone(),
            _ => Vec::new(),
        }
    }

    pub fn is_on(&self, option: &str) -> bool {
        matches!(self.options.get(option), Some(Value::Switch(true)))
    }

    /// `check` and what follows it on the command line. `driver` is what it runs, if that is not the program as it stands here.
    pub fn check_command(&self, config: &Path, driver: Option<&[OsString]>) -> Vec<OsString> {
        let both = [declared::<RecordingOptions>(), declared::<RunAllowances>()].concat();
        let is_of_check = |key: &Arg| long(key) == "model" || both.iter().any(|option| option.get_id() == key.get_id());
        let words = self.words("check", config, is_of_check);
        match driver {
            Some(driver) => with_program(words, driver),
            None => with_program(words, &self.program.0),
        }
    }

    /// Whether its crash test shows which data is transient, which its check then knows.
    pub fn shows_transient_data(&self) -> bool {
        self.options.contains_key("oracle") && self.is_on("performance")
    }

    /// Whether it has a key that only a crash test has a use for.
    fn is_crashed(&self) -> bool {
        let values = ["recover", "ops", "oracle", "suffix", "criterion"];
        let switches = ["crash-creation", "performance"];
        values.into_iter().any(|key| self.options.contains_key(key)) || switches.into_iter().any(|key| self.is_on(key))
    }

    /// Where failing images go, if the test does not say it: a folder of the test's own.
    fn default_save(&self, number: usize) -> String {
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
        let mut test = self.clone();
        let save = Value::Text(self.default_save(number));
        test.options.entry("save".to_owned()).or_insert(save);
        Some(with_program(test.words("crash", config, |_| true), &self.program.0))
    }

    fn words(&self, command: &str, config: &Path, wanted: impl Fn(&Arg) -> bool) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![command.into()];
        if config != Path::new(DEFAULT_FILE) {
            words.extend(["--config".into(), config.into()]);
        }
        for key in keys().iter().filter(|key| wanted(key)) {
            let value = self.options.get(long(key));
            let option = value.into_iter().flat_map(|value| value.words(long(key)));
            words.extend(option.map(OsString::from));
        }
        words
    }

    /// The options that say how it is crashed, not how it is run or where images are saved.
    pub fn crash_options(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        let recording = declared::<RecordingOptions>();
        let of_run = move |name: &str| {
            ["setup", "save", "allow-failure"].contains(&name) || recording.iter().any(|option| long(option) == name)
        };
        self.options
            .iter()
            .filter(move |(name, _)| !of_run(name))
            .map(|(name, value)| (name.as_str(), value.words(name)))
            .filter(|(_, words)| !words.is_empty())
    }
}

fn with_program(mut words: Vec<OsString>, program: &[impl AsRef<OsStr>]) -> Vec<OsString> {
    words.push("--".into());
    words.extend(program.iter().map(OsString::from));
    words
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::options::{Model, Oracle, Strategy, Switch};
    use crate::units::Size;
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
        assert_eq!((crash.strategy, crash.seed, crash.depth), (Strategy::Prefix, 7, 2));
        assert_eq!((crash.from.as_deref(), crash.until.as_deref()), (Some("f"), Some("g")));
        assert_eq!(crash.model, Model::Eadr);
        assert!(crash.no_tear && crash.reorder_in_line && crash.no_server && crash.recording.locked_rmw);
        assert_eq!(crash.time_limit(), Some(Duration::from_secs(5400)));
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
            ("program = \"./app\"\ntime = \"10\"", "as in 90s"),
            ("program = \"./app\"\ndepth = 3", "3 is not in 1..=2"),
            ("program = \"./app\"\njobs = 0", "0 is not in 1..="),
            ("program = \"./app\"\nsuffix = \"few\"", "a number of operations"),
            ("program = \"./app\"\ncriterion = \"buffered\"", "buffered=D"),
            ("program = \"./app\"\noracle = \"input\"", "output"),
            ("program = \"./app\"\nmemory = \"10X\"", "a number of bytes"),
            ("program = \"./app\"\nstrategy = \"fast\"", "fast"),
            ("name = \"x\"\nprogram = \"a | b\"", "started without a shell"),
            ("program = \"./app\"\nno-tear = \"yes\"", "true or false"),
            ("program = \"./app\"\npm = \"a.pm\"", "a list"),
            ("program = \"./app\"\nresume = true", "resume"),
            ("name = \"x\"\nprogram = 7", "string"),
            ("name = \"x\"\nprogram = \"\"", "empty"),
        ] {
            let error = parse(&format!("[[test]]\n{text}\n")).unwrap_err();
            assert!(error.contains(word) && error.contains("line 3"), "{text}: {error}");
        }
        assert!(parse("[[test]]\nname = \"x\"\n").unwrap_err().contains("program"));
    }
}
