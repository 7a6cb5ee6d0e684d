//! Where in the source an instruction is, with the calls that were inlined to get it there.

use crashproof_llvm::{DebugLocation, Node, NodeKind};
use crashproof_sites::Location;

/// In the operands of a `DILexicalBlock` and of a `DISubprogram`, as LLVM 19 has them.
const PARENT: usize = 1;
const NAME: usize = 2;
const LINKAGE_NAME: usize = 3;

/// Innermost first; empty if the compiler gave none.
pub(crate) fn inlining_chain(location: Option<DebugLocation>) -> Vec<Location> {
    let chain = std::iter::successors(location, |at| at.inlined_at());
    chain
        .map(|at| Location {
            function: function_of(at.scope()).to_owned(),
            file: file_of(at),
            line: at.line(),
            column: at.column(),
        })
        .collect()
}

/// Linkage name of the function that the scope is in.
fn function_of(scope: Node<'_>) -> &str {
    let mut at = Some(scope);
    while let Some(node) = at {
        match node.kind() {
            NodeKind::LLVMDISubprogramMetadataKind => {
                return match node.string(LINKAGE_NAME) {
                    "" => node.string(NAME),
                    name => name,
                };
            }
            NodeKind::LLVMDILexicalBlockMetadataKind | NodeKind::LLVMDILexicalBlockFileMetadataKind => {
                at = node.operand(PARENT);
            }
            _ => break,
        }
    }
    ""
}

/// As debug info names it, with its folder if the name is relative.
fn file_of(location: DebugLocation) -> String {
    let Some(file) = location.file() else {
        return String::new();
    };
    let (directory, name) = (file.directory(), file.name());
    if name.starts_with('/') || directory.is_empty() {
        name.into_owned()
    } else {
        format!("{directory}/{name}")
    }
}
