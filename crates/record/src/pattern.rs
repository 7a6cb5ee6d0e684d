//! The user's `--pm` globs, as the runtime wants them.
//!
//! The runtime compares with the real path of the file, so a pattern with a `/` is made absolute, and what it has of
//! plain directories in front is resolved (`..`, symbolic links). A pattern without `/` is for the file's name; one that
//! starts with `*` is for any path.

use std::path::{Component, Path, PathBuf};

use crashproof_wire::PATTERN_BYTES;

use crate::error::RecordError;

/// All patterns, each with a NUL at its end.
pub(crate) fn encode(patterns: &[String]) -> Result<Vec<u8>, RecordError> {
    let mut encoded = Vec::new();
    for pattern in patterns {
        if pattern.is_empty() || pattern.contains('\0') {
            return Err(RecordError::BadPattern {
                pattern: pattern.clone(),
            });
        }
        let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        encoded.extend_from_slice(resolve(pattern, &directory).as_bytes());
        encoded.push(0);
    }
    if encoded.len() > PATTERN_BYTES {
        return Err(RecordError::PatternsTooLong { limit: PATTERN_BYTES });
    }
    Ok(encoded)
}

fn resolve(pattern: &str, directory: &Path) -> String {
    if !pattern.contains('/') || pattern.starts_with('*') {
        return pattern.to_owned();
    }
    let components: Vec<&str> = pattern.split('/').filter(|c| !c.is_empty() && *c != ".").collect();
    let plain = components.iter().position(|c| is_glob(c)).unwrap_or(components.len());
    let mut prefix = if pattern.starts_with('/') {
        PathBuf::from("/")
    } else {
        directory.to_owned()
    };
    prefix.extend(&components[..plain]);
    let mut resolved = escape(&real(&prefix));
    for component in &components[plain..] {
        if !resolved.ends_with('/') {
            resolved.push('/');
        }
        resolved.push_str(component);
    }
    resolved
}

/// The path without symbolic links as far as it exists (the PM file itself often does not yet).
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.components().next_back()) {
        (Some(parent), Some(Component::ParentDir)) => real(parent).parent().unwrap_or(Path::new("/")).to_owned(),
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    }
}

fn is_glob(component: &str) -> bool {
    component.contains(['*', '?', '[', '\\'])
}

/// A path is no pattern: what a glob would read as one is quoted.
fn escape(path: &Path) -> String {
    let mut escaped = String::new();
    for c in path.to_string_lossy().chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_a_name() {
        assert_eq!(resolve("*.pool", Path::new("/home")), "*.pool");
    }

    #[test]
    fn relative_patterns_become_absolute() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("data")).unwrap();
        std::os::unix::fs::symlink("data", real.join("link")).unwrap();
        let text = |rest: &str| format!("{}/{rest}", real.display());
        assert_eq!(resolve("data/*.pool", &real), text("data/*.pool"));
        assert_eq!(resolve("./*", &real), text("*"));
        assert_eq!(resolve("link/new.pool", &real), text("data/new.pool"));
        assert_eq!(resolve("data/../other/x", &real), text("other/x"));
        assert_eq!(resolve("/mnt/p?em/../*", &real), "/mnt/p?em/../*");
    }

    #[test]
    fn a_directory_with_glob_characters_is_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap().join("a[1]");
        std::fs::create_dir(&real).unwrap();
        assert!(resolve("./*.pm", &real).ends_with("/a\\[1\\]/*.pm"));
    }

    #[test]
    fn too_many_are_refused() {
        let long = vec!["x".repeat(1000); 100];
        assert!(matches!(encode(&long), Err(RecordError::PatternsTooLong { .. })));
        assert!(matches!(encode(&[String::new()]), Err(RecordError::BadPattern { .. })));
    }
}
