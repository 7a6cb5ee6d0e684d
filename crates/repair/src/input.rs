//! What is to be repaired and how it is built and run: from the command line and from `crashproof.toml`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use crashproof_campaign::options::Model;
use crashproof_campaign::project::{Test, in_one_line};
use crashproof_check::{Config, ConfigError};
use crashproof_finding::Finding;
use serde_json::{Map, Value, json};

use crate::arguments::RepairArguments;
use crate::recovery::{Recovery, given_options};

const CONFIG: &str = "crashproof.toml";

#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the repair needs the command that builds the program: --build make, or `build` of [repair] in {CONFIG}")]
    NoBuild,
    #[error(
        "which program? Give it after --, as `crashproof repair --build make -- ./app args…`, or as a [[test]] in {CONFIG}"
    )]
    NoProgram,
    #[error("{} has several tests ({}); give the program of one of them after --", path.display(), names.join(", "))]
    SeveralTests { path: PathBuf, names: Vec<String> },
    #[error("there is no model {name:?}; --model is px86 or eadr")]
    Model { name: String },
    #[error("the options of the crash test are wrong: {reason}; they are those of `crashproof crash`")]
    CrashOptions { reason: String },
    #[error(
        "--{option} is about the crash test, which needs the recovery: --recover CMD, or `recover` of the [[test]] in {CONFIG}"
    )]
    NoRecovery { option: &'static str },
    #[error("cannot read the findings {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error(
        "{} is not a list of findings: {reason}; `crashproof check --json FILE` writes one, docs/check.md says what is in it",
        path.display()
    )]
    Findings { path: PathBuf, reason: String },
}

/// All that was asked for.
pub struct Input {
    pub build: String,
    pub test: Option<String>,
    pub setup: Option<String>,
    /// May be empty if a trace tells it.
    pub program: Vec<OsString>,
    pub pm: Vec<String>,
    pub config: Option<PathBuf>,
    pub given: Given,
    /// How the program is crashed, if it is.
    pub recovery: Option<Recovery>,
    /// What the hardware promises, if it is not the usual.
    pub model: Option<Model>,
    pub locked_rmw: bool,
}

/// Where the findings come from.
pub enum Given {
    /// A run of the program.
    Run,
    Trace(PathBuf),
    Findings(Vec<Finding>),
}

fn words(test: &Test) -> Vec<OsString> {
    test.program.0.iter().map(OsString::from).collect()
}

impl Input {
    pub fn new(arguments: &RepairArguments) -> Result<Input, InputError> {
        let config = arguments
            .config
            .clone()
            .or_else(|| default_config(arguments.source.as_deref()));
        let loaded: Config<Test> = match &config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        let given = match (&arguments.findings, &arguments.trace) {
            (Some(path), _) => Given::Findings(read_findings(path)?),
            (None, Some(trace)) => Given::Trace(trace.clone()),
            (None, None) => Given::Run,
        };
        let mut program = arguments.command.clone();
        let from_findings = || arguments.findings.as_deref().map_or_else(Vec::new, command_of);
        if program.is_empty() {
            program = from_findings();
        }
        let mut test = loaded.tests.iter().find(|test| words(test) == program);
        if program.is_empty() && !matches!(given, Given::Trace(_)) {
            match loaded.tests.as_slice() {
                [] => return Err(InputError::NoProgram),
                [only] => {
                    program = words(only);
                    test = Some(only);
                }
                tests => {
                    return Err(InputError::SeveralTests {
                        path: config.unwrap_or_default(),
                        names: tests.iter().filter_map(|test| test.name.clone()).collect(),
                    });
                }
            }
        }
        let commands = loaded.repair.clone();
        let model = arguments.model.as_deref().or_else(|| test?.text("model"));
        let model =
            model.map(|name| Model::from_str(name, false).map_err(|_| InputError::Model { name: name.to_owned() }));
        let model = model.transpose()?;
        let recovery = Recovery::new(arguments, test);
        if let Some(Err(error)) = recovery.as_ref().map(Recovery::check) {
            let reason = in_one_line(&error);
            return Err(InputError::CrashOptions { reason });
        }
        if let (None, Some(option)) = (&recovery, of_a_crash_test(arguments)) {
            return Err(InputError::NoRecovery { option });
        }
        Ok(Input {
            build: arguments.build.clone().or(commands.build).ok_or(InputError::NoBuild)?,
            test: arguments.test.clone().or(commands.test),
            setup: arguments
                .setup
                .clone()
                .or(commands.setup)
                .or_else(|| Some(test?.text("setup")?.to_owned())),
            program,
            pm: match (arguments.pm.is_empty(), test) {
                (true, Some(test)) => test.list("pm"),
                _ => arguments.pm.clone(),
            },
            recovery,
            model,
            locked_rmw: test.is_some_and(|test| test.is_on("locked-rmw")),
            config,
            given,
        })
    }
}

/// Where the user is, else at the root of the source tree.
fn default_config(source: Option<&Path>) -> Option<PathBuf> {
    let there = source.map(|source| source.join(CONFIG));
    [Some(PathBuf::from(CONFIG)), there]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
}

/// An option that means nothing without a recovery. (`--model` is one of the check, too.)
fn of_a_crash_test(arguments: &RepairArguments) -> Option<&'static str> {
    let mut given = given_options(arguments).map(|(name, _)| name);
    given.find(|name| !["recover", "model"].contains(name))
}

fn read_json(path: &Path) -> Result<Value, InputError> {
    let text = std::fs::read_to_string(path).map_err(|source| InputError::Read {
        path: path.into(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|error| InputError::Findings {
        path: path.into(),
        reason: error.to_string(),
    })
}

/// The program that a report is about.
fn command_of(path: &Path) -> Vec<OsString> {
    let words = read_json(path)
        .ok()
        .and_then(|report| report.pointer("/program/command").cloned());
    let words: Vec<String> = words
        .and_then(|words| serde_json::from_value(words).ok())
        .unwrap_or_default();
    words.into_iter().map(OsString::from).collect()
}

/// A report, or a list of findings. Of other tools no more is expected than kind, file and line.
fn read_findings(path: &Path) -> Result<Vec<Finding>, InputError> {
    let wrong = |reason: String| InputError::Findings {
        path: path.into(),
        reason,
    };
    let list = match read_json(path)? {
        Value::Array(list) => list,
        Value::Object(mut report) => match report.remove("findings") {
            Some(Value::Array(list)) => list,
            _ => return Err(wrong("it has no list `findings`".to_owned())),
        },
        _ => return Err(wrong("it is neither a report nor a list".to_owned())),
    };
    let mut findings = Vec::new();
    for (index, finding) in list.into_iter().enumerate() {
        let finding = serde_json::from_value(complete(finding));
        findings.push(finding.map_err(|error| wrong(format!("finding {}: {error}", index + 1)))?);
    }
    Ok(findings)
}

/// Fills in what a finding of another tool may lack.
fn complete(mut finding: Value) -> Value {
    let Some(fields) = finding.as_object_mut() else {
        return finding;
    };
    let own = |name: &str, fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or(Value::Null);
    let stack = fields.get("stack").and_then(Value::as_array);
    if stack.is_none_or(Vec::is_empty) {
        let frame = json!({
            "function": own("function", fields),
            "file": own("file", fields),
            "line": own("line", fields),
            "column": own("column", fields),
        });
        fields.insert("stack".to_owned(), json!([frame]));
    }
    for (name, value) in [
        ("severity", json!("error")),
        ("count", json!(1)),
        ("message", json!("")),
    ] {
        fields.entry(name).or_insert(value);
    }
    for stack in ["/stack", "/durable_by/stack"] {
        for frame in finding
            .pointer_mut(stack)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(frame) = frame.as_object_mut() {
                frame.entry("address").or_insert(json!(0));
            }
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crashproof_finding::{Kind, Severity};

    fn findings(text: &str) -> Result<Vec<Finding>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read_findings(file.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn kind_file_and_line_are_enough() {
        for text in [
            r#"[{"kind": "missing-flush", "file": "a.c", "line": 7}]"#,
            r#"{"findings": [{"kind": "missing-flush", "file": "a.c", "line": 7, "stack": []}]}"#,
        ] {
            let found = findings(text).unwrap();
            assert_eq!(
                (found[0].kind, found[0].severity, found[0].count),
                (Kind::MissingFlush, Severity::Error, 1)
            );
            assert_eq!(
                (found[0].stack[0].file.as_deref(), found[0].stack[0].line),
                (Some("a.c"), Some(7))
            );
            assert!(found[0].durable_by.is_none());
        }
        let stack = r#"[{"kind": "missing-fence", "stack": [{"function": "f"}], "durable_by": {"kind": "fence", "stack": [{"function": "g"}]}}]"#;
        assert_eq!(
            findings(stack).unwrap()[0].durable_by.as_ref().unwrap().stack[0]
                .function
                .as_deref(),
            Some("g")
        );
    }

    #[test]
    fn what_is_not_a_list_of_findings_is_refused() {
        for (text, word) in [
            ("{", "EOF"),
            ("7", "neither"),
            ("{}", "no list"),
            (r#"[{"kind": "missing-flash"}]"#, "finding 1"),
            (r#"{"findings": [7]}"#, "finding 1"),
        ] {
            let error = findings(text).unwrap_err();
            assert!(
                error.contains(word) && error.contains("crashproof check --json"),
                "{text}: {error}"
            );
        }
    }
}
