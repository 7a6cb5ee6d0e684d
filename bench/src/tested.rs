//! A program of the corpus built by `crashproof cc` and crash tested: what the comparisons of strategies share.

use std::path::Path;
use std::process::{Command, Stdio};

use crashproof_finding::{Report, Stats};

use crate::measure::{Measured, once};
use crate::structure::Structure;

/// A test to its end, or to the first state that fails.
pub(crate) struct Tested {
    pub report: Report,
    pub stats: Stats,
}

impl Tested {
    /// States and seconds until the first one failed.
    pub(crate) fn found(&self) -> Option<(u64, f64)> {
        self.stats.first_failure.map(|first| (first.states, first.seconds))
    }

    /// How a test that nothing ended early went.
    pub(crate) fn to_its_end(&self) -> String {
        let cut = if self.stats.cut_short { " cut" } else { "" };
        format!("{} ({:.0} s{cut})", self.stats.states_tested, self.stats.seconds)
    }

    pub(crate) fn to_the_bug(&self) -> String {
        match self.found() {
            Some((states, seconds)) => format!("{states} ({seconds:.2} s)"),
            None => format!("- ({})", self.stats.states_tested),
        }
    }
}

/// `program` in the folder.
pub(crate) fn build(
    tool: &Path,
    folder: &Path,
    structure: &Structure,
    bug: Option<&str>,
    options: &[&str],
    libraries: &[&str],
) {
    let (driver, standard) = match structure.is_cxx() {
        true => ("c++", "-std=gnu++17"),
        false => ("cc", "-std=gnu11"),
    };
    let mut command = Command::new(tool);
    command.args([driver, "-g", "-O2", standard]).args(options);
    command.args(bug.map(|bug| format!("-D{bug}")));
    command.arg(&structure.source).args(libraries);
    crate::compile(&mut command, &folder.join("program"));
}

/// `crashproof crash` with these words, one worker, in the folder.
pub(crate) fn crash(tool: &Path, folder: &Path, words: &[&str]) -> Tested {
    let mut arguments = vec!["crash", "--jobs", "1", "--json", "report.json"];
    arguments.extend(words);
    let _ = std::fs::remove_file(folder.join("report.json"));
    run(tool, folder, &arguments);
    let report: Report = read_json(&folder.join("report.json"));
    Tested {
        stats: report.stats.clone().expect("a crash test has figures"),
        report,
    }
}

/// The tool with these words; what it says is shown only if it fails.
pub(crate) fn run(tool: &Path, folder: &Path, words: &[&str]) -> Measured {
    let said = folder.join("stderr");
    let file = std::fs::File::create(&said).expect("a temporary file");
    let mut command = Command::new(tool);
    command
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(file);
    once(command).unwrap_or_else(|error| {
        let said = std::fs::read_to_string(&said).unwrap_or_default();
        eprint!("{error}:\n{said}");
        std::process::exit(2)
    })
}

pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
