//! `crashproof header`: the header with the annotations, which need nothing else, and the one for drivers, which needs it.

use std::path::Path;

use super::{Result, outcome};
use crate::arguments::HeaderArguments;
use crate::exit::Exit;

const HEADER: &str = include_str!("../../../../include/crashproof.h");
const DRIVER_HEADER: &str = include_str!("../../../../include/crashproof_driver.h");

pub(crate) fn run(arguments: &HeaderArguments) -> Result {
    let path = arguments.file.as_deref().unwrap_or(Path::new("-"));
    let header = if arguments.driver { DRIVER_HEADER } else { HEADER };
    outcome::write("header", path, header)?;
    Ok(Exit::Clean)
}
