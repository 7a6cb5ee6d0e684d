//! The failing image on disk: a folder with what a crash left, and how to try the recovery on it again.
//!
//! `replay.json` describes it; the images beside it are sparse files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crashproof_finding::{Finding, Replay};
use crashproof_wire::recovery::Mapping;
use serde::{Deserialize, Serialize};

use super::cause::Cause;
use super::history::Laboratory;
use super::words::with_arguments;
use super::{ExplainError, Words};

const VERSION: u32 = 1;
const DESCRIPTION: &str = "replay.json";
const OUTPUT: &str = "output";
const EXPECTED: &str = "expected-output";
/// Read and written at once; all of it zero: left out.
const BLOCK: usize = 4096;
/// Environment variables with this start change what PMDK does.
const ENVIRONMENT: &str = "PMEM";

/// A crash that was saved: all that it takes to run the recovery on it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedCrash {
    pub version: u32,
    /// The commands, as for a shell.
    pub recover: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// The folder that they run in.
    pub folder: PathBuf,
    /// What one of them may take, in milliseconds.
    pub timeout_ms: u64,
    /// Of one of them, and what they may write to files; bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// All paths that PM files had while the program ran: where none of `files` is, nothing was.
    #[serde(default)]
    pub paths: Vec<String>,
    /// The file in the folder of the crash with what the recovery must print.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_output: Option<String>,
    /// Files with what it may print instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub or_output: Vec<String>,
    pub files: Vec<SavedFile>,
    /// The file in the folder with what the program had output before the crash.
    pub output: String,
    /// Where the recorded program had the files mapped, by their index in `files`.
    pub mappings: Vec<SavedMapping>,
    /// Variables that were set and that change what the recovery does.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    pub kind: String,
    /// The finding's message, and how the recovery failed.
    pub message: String,
    pub verdict: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFile {
    /// Where the recovery expects it. `None`: it was removed.
    pub path: Option<String>,
    pub size: u64,
    /// In the folder.
    pub image: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedMapping {
    pub file: u32,
    pub offset: u64,
    pub len: u64,
    pub address: u64,
}

impl SavedCrash {
    pub fn mappings(&self) -> Vec<Mapping> {
        let mapping = |saved: &SavedMapping| Mapping {
            file: saved.file,
            reserved: 0,
            offset: saved.offset,
            len: saved.len,
            address: saved.address,
        };
        self.mappings.iter().map(mapping).collect()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "{} is no saved crash: it has no {DESCRIPTION}; give a folder that `crashproof crash` has named as one to replay",
        directory.display()
    )]
    NotSaved { directory: PathBuf },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is damaged: {source}; run `crashproof crash` again to save it anew", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error(
        "{} has version {found}, and this crashproof reads version {VERSION}; use the crashproof that saved it, or run \
         `crashproof crash` again",
        path.display()
    )]
    Version { path: PathBuf, found: u32 },
    #[error("{} is damaged: {what}; run `crashproof crash` again to save it anew", path.display())]
    Inconsistent { path: PathBuf, what: String },
}

/// How the user runs the recovery on the folder's image again.
pub(super) fn replay(directory: &Path) -> Replay {
    let directory = directory.display().to_string();
    Replay {
        command: format!("crashproof crash --replay {}", quoted(&directory)),
        directory,
    }
}

/// For a shell.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

pub(super) fn save(
    directory: &Path,
    cause: &Cause,
    finding: &Finding,
    lab: &mut Laboratory,
    words: &Words,
) -> Result<(), ExplainError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| ExplainError::Save { path, source }
    };
    // What an earlier campaign saved under the number is of another cause.
    if directory.join(DESCRIPTION).exists() {
        std::fs::remove_dir_all(directory).map_err(at(directory))?;
    }
    std::fs::create_dir_all(directory).map_err(at(directory))?;
    let mut files = Vec::new();
    for file in 0..lab.file_count() {
        let (size, path) = (
            lab.size(file, &cause.state),
            lab.path(file, &cause.state).map(str::to_owned),
        );
        let image = format!("image-{file}");
        let target = directory.join(&image);
        write_image(&target, size, |offset, buffer| {
            lab.read(&cause.state, file, offset, buffer)
        })
        .map_err(at(&target))?;
        files.push(SavedFile { path, size, image });
    }
    let output = directory.join(OUTPUT);
    std::fs::write(&output, lab.output(&cause.state)).map_err(at(&output))?;
    let mut expected = Vec::new();
    for (number, output) in lab.expected(&cause.state)?.into_iter().flatten().enumerate() {
        let name = match number {
            0 => EXPECTED.to_owned(),
            number => format!("{EXPECTED}-{}", number + 1),
        };
        let path = directory.join(&name);
        std::fs::write(&path, output.stdout).map_err(at(&path))?;
        expected.push(name);
    }
    let mut expected = expected.into_iter();
    let saved_mapping = |mapping: &Mapping| SavedMapping {
        file: mapping.file,
        offset: mapping.offset,
        len: mapping.len,
        address: mapping.address,
    };
    let saved = SavedCrash {
        version: VERSION,
        recover: with_arguments(&words.recover, &lab.arguments(&cause.state)),
        check: words.check.clone(),
        folder: words.directory.clone(),
        timeout_ms: words.timeout.as_millis().try_into().unwrap_or(u64::MAX),
        memory: Some(words.memory),
        disk: Some(words.disk),
        paths: words.paths.clone(),
        expect_output: expected.next(),
        or_output: expected.collect(),
        files,
        output: OUTPUT.to_owned(),
        mappings: lab.mappings().iter().map(saved_mapping).collect(),
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with(ENVIRONMENT))
            .collect(),
        kind: cause.kind.name().to_owned(),
        message: finding.message.clone(),
        verdict: finding
            .crash
            .as_ref()
            .map_or_else(String::new, |crash| crash.recovery.in_words("recovery")),
    };
    // Last: a folder without it is not a saved crash.
    let description = directory.join(DESCRIPTION);
    let text = serde_json::to_string_pretty(&saved)
        .map_err(io::Error::other)
        .map_err(at(&description))?;
    std::fs::write(&description, text + "\n").map_err(at(&description))
}

/// Only the blocks that hold something.
fn write_image(path: &Path, size: u64, mut read: impl FnMut(u64, &mut [u8])) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(size)?;
    let mut buffer = vec![0; BLOCK];
    for offset in (0..size).step_by(BLOCK) {
        let length = (size - offset).min(BLOCK as u64) as usize;
        let block = &mut buffer[..length];
        read(offset, block);
        if block.iter().any(|&byte| byte != 0) {
            file.write_all_at(block, offset)?;
        }
    }
    Ok(())
}

/// Reads a folder that [`save`] has written; the images are there and of the size that they should have.
pub fn load(directory: &Path) -> Result<SavedCrash, LoadError> {
    let path = directory.join(DESCRIPTION);
    let text = std::fs::read(&path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => LoadError::NotSaved {
            directory: directory.to_owned(),
        },
        _ => LoadError::Read {
            path: path.clone(),
            source,
        },
    })?;
    let damaged = |source| LoadError::Damaged {
        path: path.clone(),
        source,
    };
    // The version first: another one may have other fields.
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(damaged)?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(found) if found != u64::from(VERSION) => {
            return Err(LoadError::Version {
                path,
                found: found as u32,
            });
        }
        _ => {}
    }
    let saved: SavedCrash = serde_json::from_value(value).map_err(damaged)?;
    let inconsistent = |what: String| LoadError::Inconsistent {
        path: path.clone(),
        what,
    };
    for file in &saved.files {
        if !is_plain_name(&file.image) {
            return Err(inconsistent(format!(
                "the image {:?} is not a name in the folder",
                file.image
            )));
        }
        let image = directory.join(&file.image);
        let metadata = std::fs::metadata(&image).map_err(|source| LoadError::Read {
            path: image.clone(),
            source,
        })?;
        if metadata.len() != file.size {
            return Err(inconsistent(format!(
                "{} has {} bytes instead of {}",
                file.image,
                metadata.len(),
                file.size
            )));
        }
    }
    for name in [Some(&saved.output), saved.expect_output.as_ref()]
        .into_iter()
        .flatten()
    {
        if !is_plain_name(name) {
            return Err(inconsistent(format!("the output {name:?} is not a name in the folder")));
        }
    }
    if let Some(mapping) = saved.mappings.iter().find(|m| m.file as usize >= saved.files.len()) {
        return Err(inconsistent(format!(
            "a mapping is of file {}, which is not there",
            mapping.file
        )));
    }
    Ok(saved)
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && name != "." && name != ".."
}
