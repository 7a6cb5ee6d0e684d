//! Puts the front end's bitcode, the site table and the judged functions into the object, by assembly of the module:
//! sections that are not loaded, so that they cost nothing at run time, and that archives, linkers and GNU strip keep.

use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crashproof_llvm::Module;
use crashproof_sites::section::{self, Content};
use crashproof_sites::{JudgedFunction, ObjectTable};

use crate::CompileError;

/// How the assembly holds the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By the name of a file in the scratch folder: for an object, which is made while the file is there.
    File,
    /// As numbers: for assembly that the user gets.
    Text,
}

/// Embeds the file `bitcode` and the tables into what will be made of `module`.
pub fn embed(
    module: &Module,
    bitcode: &Path,
    table: &ObjectTable,
    judged: &[JudgedFunction],
    scratch: &Path,
    form: Form,
) -> Result<(), CompileError> {
    let payload = fs::read(bitcode).map_err(|source| CompileError::File {
        what: "read",
        path: bitcode.into(),
        source,
    })?;
    let bitcode = section::frame(Content::Bitcode, table.object, &payload);
    append(module, Content::Bitcode, &bitcode, scratch, form)?;
    embed_tables(module, table, judged, scratch, form)
}

/// Embeds the tables alone.
pub fn embed_tables(
    module: &Module,
    table: &ObjectTable,
    judged: &[JudgedFunction],
    scratch: &Path,
    form: Form,
) -> Result<(), CompileError> {
    append(module, Content::Sites, &section::table_frame(table), scratch, form)?;
    match judged {
        [] => Ok(()),
        _ => append(
            module,
            Content::Helpers,
            &section::judged_frame(table.object, judged),
            scratch,
            form,
        ),
    }
}

/// A path as the assembler reads it between quotes.
pub fn quoted(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"")
}

fn append(module: &Module, content: Content, frame: &[u8], scratch: &Path, form: Form) -> Result<(), CompileError> {
    let name = content.section();
    let mut assembly = format!(".pushsection {name},\"\",@progbits\n").into_bytes();
    match form {
        Form::File => {
            let path = scratch.join(name.trim_start_matches('.'));
            fs::write(&path, frame).map_err(|source| CompileError::File {
                what: "write",
                path: path.clone(),
                source,
            })?;
            assembly.extend_from_slice(b".incbin \"");
            for &byte in path.as_os_str().as_bytes() {
                if matches!(byte, b'"' | b'\\') {
                    assembly.push(b'\\');
                }
                assembly.push(byte);
            }
            assembly.extend_from_slice(b"\"\n");
        }
        Form::Text => assembly.extend_from_slice(numbers(frame).as_bytes()),
    }
    assembly.extend_from_slice(b".popsection\n");
    module.append_assembly(&assembly);
    Ok(())
}

/// A frame is a multiple of 8 bytes long.
fn numbers(frame: &[u8]) -> String {
    let mut text = String::with_capacity(frame.len() * 5 / 2);
    let (words, _) = frame.as_chunks::<8>();
    for line in words.chunks(8) {
        text.push_str(".quad ");
        for (at, word) in line.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{:#x}", u64::from_le_bytes(*word));
        }
        text.push('\n');
    }
    text
}
