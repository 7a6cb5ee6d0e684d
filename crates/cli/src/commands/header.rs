//! `crashproof header`: the header with the annotations, which need nothing else.

use std::path::Path;

use super::{Result, outcome};
use crate::arguments::HeaderArguments;
use crate::exit::Exit;

const HEADER: &str = include_str!("../../../../include/crashproof.h");

pub fn run(arguments: &HeaderArguments) -> Result {
    let path = arguments.file.as_deref().unwrap_or(Path::new("-"));
    outcome::write("header", path, HEADER)?;
    Ok(Exit::Clean)
}
