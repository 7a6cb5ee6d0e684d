//! Where the runtime is: beside this executable, unless the environment says otherwise.

use std::path::PathBuf;

pub const FILE_NAME: &str = "libcrashproof_runtime.so";
pub const VARIABLE: &str = "CRASHPROOF_RUNTIME";

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("cannot find out where crashproof itself is: {0}; set {VARIABLE} to the path of {FILE_NAME}")]
    OwnPath(#[source] std::io::Error),
    #[error(
        "the runtime {} does not exist; build it with `make build`, put it beside the crashproof binary, or set {VARIABLE} \
         to its path",
        path.display()
    )]
    Missing { path: PathBuf },
}

pub fn find() -> Result<PathBuf, RuntimeError> {
    let path = match std::env::var_os(VARIABLE) {
        Some(path) => PathBuf::from(path),
        // The path of a symbolic link is resolved by the kernel already.
        None => std::env::current_exe()
            .map_err(RuntimeError::OwnPath)?
            .with_file_name(FILE_NAME),
    };
    if path.is_file() {
        Ok(path)
    } else {
        Err(RuntimeError::Missing { path })
    }
}
