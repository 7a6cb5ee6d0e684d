//! Where code can follow a statement.

use std::ops::Range;

use clang::EntityKind;

use super::refusal::Refusal;
use super::text::TokenKind;
use super::tree::{FunctionTree, NodeId};

/// The statement around an expression, and how something can be made to run right after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// Its root in the tree.
    pub node: NodeId,
    /// Without the `;`.
    pub statement: Range<usize>,
    pub context: Context,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// In a block; the offset is behind its `;`.
    Block { end: usize },
    /// The only statement of an `if`, loop or `else`: needs braces; the opening one goes behind `header_end`. `body` is where the statement begins, with
    /// its labels.
    Body { header_end: usize, body: usize, end: usize },
    /// First or third part of a `for`: a comma expression.
    Comma,
    /// `return E;`: the value is kept in a variable. `None`: the function returns none.
    Return { end: usize, ty: Option<String> },
    /// `if (E)` or `switch (E)` in a block: the value is kept in a variable; the range is `E`.
    Condition { value: Range<usize>, ty: String },
    /// The condition of a loop, or of another that is not in a block: a comma expression that keeps the value in a variable, which is declared at
    /// `declare`.
    LoopCondition {
        value: Range<usize>,
        ty: String,
        declare: usize,
    },
    /// The initialisers of a constructor: at the start of its body; the offset is behind the `{`.
    Constructor { body: usize },
}

impl<'a> FunctionTree<'a> {
    /// Of an expression or statement that is run exactly when the statement around it is.
    pub(crate) fn anchor(&self, node: NodeId) -> Result<Anchor, Refusal> {
        let anchor = self.statement_around(node)?;
        if self.file.has_directive(self.line_and_end(&anchor)) {
            return Err(Refusal::Directive);
        }
        Ok(anchor)
    }

    /// What an insertion touches, from the statement's (or its header's) first to its last character.
    fn line_and_end(&self, anchor: &Anchor) -> Range<usize> {
        let start = anchor.statement.start;
        match anchor.context {
            Context::Block { end } | Context::Return { end, .. } => start..end,
            Context::Body { header_end, end, .. } => header_end..end,
            Context::Condition { ref value, .. } => start..value.end,
            Context::LoopCondition { ref value, .. } => value.clone(),
            Context::Comma | Context::Constructor { .. } => anchor.statement.clone(),
        }
    }

    fn statement_around(&self, node: NodeId) -> Result<Anchor, Refusal> {
        use EntityKind::*;
        let refuse = |context| Err(Refusal::NoStatementAfter { context });
        // What the insertion follows, and what it is a part of as far as contexts go: they differ behind a label.
        let mut statement = node;
        let mut current = node;
        loop {
            let Some(parent) = self.nodes[current].parent else {
                return refuse("no statement");
            };
            let inside_macro = self.is_inside_same_macro(statement, parent);
            match self.kind(parent) {
                CompoundStmt => {
                    self.check_last_of_statement_expression(parent, current)?;
                    if !inside_macro {
                        return self.in_block(statement);
                    }
                    self.check_no_early_exit(parent, current)?;
                    (statement, current) = (parent, parent);
                }
                DoStmt if inside_macro && self.is_once(parent) => (statement, current) = (parent, parent),
                IfStmt | WhileStmt | ForStmt | ForRangeStmt | DoStmt | SwitchStmt if inside_macro => {
                    return Err(self.macro_refusal(statement));
                }
                kind @ (IfStmt | WhileStmt | ForStmt | ForRangeStmt | DoStmt | SwitchStmt) => {
                    return self.in_control_statement(kind, parent, current, statement);
                }
                CaseStmt | DefaultStmt | LabelStmt => {
                    if self.nodes[parent].children.last() != Some(&current) {
                        return refuse("a label");
                    }
                    current = parent;
                }
                ReturnStmt => return self.in_return(parent),
                ConditionalOperator if self.child(parent, 0) != Some(current) => {
                    return refuse("a conditional expression");
                }
                BinaryOperator
                    if matches!(self.name(parent).as_str(), "&&" | "||") && self.child(parent, 0) != Some(current) =>
                {
                    return refuse("an operand that is not always evaluated");
                }
                UnaryExpr => return refuse("an operand that is not evaluated"),
                Constructor if parent == 0 => return self.in_constructor(statement),
                kind if super::tree::is_function(kind) => return refuse("no statement"),
                LambdaExpr => return refuse("a lambda's captures"),
                _ => (statement, current) = (parent, parent),
            }
        }
    }

    fn macro_refusal(&self, node: NodeId) -> Refusal {
        let name = self
            .macro_around(&self.range(node))
            .map_or_else(String::new, |(_, name)| name.clone());
        Refusal::Macro { name }
    }

    /// Whether both come from one use of a macro, so that nothing can be inserted between them.
    fn is_inside_same_macro(&self, inner: NodeId, outer: NodeId) -> bool {
        let Some((used, _)) = self.macro_around(&self.range(inner)) else {
            return false;
        };
        let outer = self.range(outer);
        used.start <= outer.start && outer.end <= used.end
    }

    /// `do … while (0)`, as macros have it.
    fn is_once(&self, node: NodeId) -> bool {
        self.nodes[node].children.last().is_some_and(|condition| {
            let entity = self.nodes[self.strip(*condition)].entity;
            matches!(
                entity.evaluate(),
                Some(clang::EvaluationResult::SignedInteger(0) | clang::EvaluationResult::UnsignedInteger(0))
            )
        })
    }

    /// What leaves a macro's block before the store would reach an insertion behind the macro without it.
    fn check_no_early_exit(&self, block: NodeId, until: NodeId) -> Result<(), Refusal> {
        use EntityKind::{BreakStmt, ContinueStmt, GotoStmt, IndirectGotoStmt};
        let before = self.nodes[block].children.iter().take_while(|child| **child != until);
        let leaves = |node: NodeId| matches!(self.kind(node), BreakStmt | ContinueStmt | GotoStmt | IndirectGotoStmt);
        match before.flat_map(|child| self.descendants(*child)).any(leaves) {
            true => Err(self.macro_refusal(until)),
            false => Ok(()),
        }
    }

    fn check_last_of_statement_expression(&self, block: NodeId, child: NodeId) -> Result<(), Refusal> {
        let is_value = self.nodes[block].children.last() == Some(&child)
            && self.nodes[block]
                .parent
                .is_some_and(|parent| self.kind(parent) == EntityKind::StmtExpr);
        match is_value {
            true => Err(Refusal::NoStatementAfter {
                context: "the value of a statement expression",
            }),
            false => Ok(()),
        }
    }

    /// The statement's own range; of one that comes from a macro, the use of it.
    pub(crate) fn statement_range(&self, node: NodeId) -> Result<Range<usize>, Refusal> {
        let range = self.range(node);
        match self.macro_around(&range) {
            None => Ok(range),
            Some((used, _)) if used.start <= range.start && range.end <= used.end => Ok(used.clone()),
            Some(_) => Err(self.macro_refusal(node)),
        }
    }

    /// Behind the `;`; a use of a macro may do without.
    pub(crate) fn statement_end(&self, node: NodeId, range: &Range<usize>) -> Result<usize, Refusal> {
        match self.file.next_token(range.end) {
            Some(token) if self.file.token_text(token) == ";" => Ok(token.end),
            _ if self.macro_around(&self.range(node)).is_some() => Ok(range.end),
            _ if self.file.text[..range.end].ends_with(['}', ';']) => Ok(range.end),
            _ => Err(Refusal::NoStatementAfter {
                context: "a statement without an end",
            }),
        }
    }

    fn in_block(&self, node: NodeId) -> Result<Anchor, Refusal> {
        let statement = self.statement_range(node)?;
        let end = self.statement_end(node, &statement)?;
        Ok(Anchor {
            node,
            statement,
            context: Context::Block { end },
        })
    }

    /// The last token between the start of a statement and a part of it.
    fn token_before(&self, statement: NodeId, part: &Range<usize>) -> Option<super::text::Token> {
        let tokens = self.file.tokens(self.range(statement).start..part.start);
        tokens.into_iter().rfind(|token| token.kind != TokenKind::Directive)
    }

    fn in_control_statement(
        &self,
        kind: EntityKind,
        parent: NodeId,
        part: NodeId,
        node: NodeId,
    ) -> Result<Anchor, Refusal> {
        let statement = self.statement_range(node)?;
        let part = match part == node {
            true => statement.clone(),
            false => self.range(part),
        };
        let before = self.token_before(parent, &part);
        let text = before.map_or("", |token| self.file.token_text(token));
        let is_header = matches!(text, "(" | ";" | ",") || (text == ":" && kind == EntityKind::ForRangeStmt);
        if !is_header && let Some(before) = before {
            let end = self.statement_end(node, &statement)?;
            return Ok(Anchor {
                node,
                statement,
                context: Context::Body {
                    header_end: before.end,
                    body: part.start,
                    end,
                },
            });
        }
        let is_in_block = self.nodes[parent]
            .parent
            .is_some_and(|outer| self.kind(outer) == EntityKind::CompoundStmt);
        match kind {
            EntityKind::ForStmt if self.is_first_or_third(parent, &part) && self.kind(node) != EntityKind::DeclStmt => {
                Ok(Anchor {
                    node,
                    statement,
                    context: Context::Comma,
                })
            }
            EntityKind::IfStmt | EntityKind::SwitchStmt if is_in_block && text == "(" => {
                self.in_condition(parent, node)
            }
            EntityKind::ForRangeStmt => Err(Refusal::NoStatementAfter {
                context: "the range of a loop",
            }),
            _ => self.in_loop_condition(parent, node),
        }
    }

    /// `while (E)` as `while (v = E, …, v)`.
    fn in_loop_condition(&self, parent: NodeId, node: NodeId) -> Result<Anchor, Refusal> {
        let value = self.statement_range(node)?;
        let is_scalar = |ty: &clang::Type| ty.get_canonical_type().get_kind() != clang::TypeKind::Record;
        let ty = self
            .ty(node)
            .filter(is_scalar)
            .and_then(|ty| spelled_type(&ty, self.unit.is_cxx()));
        // The variable goes in front of the statement of the block that it is in.
        let declare = std::iter::once(parent)
            .chain(self.ancestors(parent))
            .find(|outer| self.can_declare(*outer));
        let is_comma = self.kind(node) == EntityKind::BinaryOperator && self.name(node) == ",";
        let is_expression = !is_comma && !matches!(self.kind(node), EntityKind::VarDecl | EntityKind::DeclStmt);
        match (ty, declare) {
            (Some(ty), Some(declare)) if is_expression && self.macro_around(&self.range(declare)).is_none() => {
                Ok(Anchor {
                    node,
                    statement: value.clone(),
                    context: Context::LoopCondition {
                        value,
                        ty,
                        declare: self.range(declare).start,
                    },
                })
            }
            _ => Err(Refusal::NoStatementAfter {
                context: "a condition whose value cannot be kept in a variable",
            }),
        }
    }

    /// Of a `for`: not the condition in the middle.
    fn is_first_or_third(&self, parent: NodeId, part: &Range<usize>) -> bool {
        let mut depth = 0;
        let mut semicolons = 0;
        for token in self.file.tokens(self.range(parent).start..part.start) {
            match self.file.token_text(token) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                ";" if depth == 1 => semicolons += 1,
                _ => {}
            }
        }
        semicolons != 1
    }

    fn in_condition(&self, parent: NodeId, node: NodeId) -> Result<Anchor, Refusal> {
        let value = self.statement_range(node)?;
        let statement = self.range(parent);
        let closes = self.file.next_token(value.end).map(|token| self.file.token_text(token));
        let ty = self
            .ty(node)
            .and_then(|ty| spelled_type(&ty, self.unit.is_cxx()))
            .filter(|_| self.can_declare(parent));
        match (closes, ty) {
            (Some(")"), Some(ty)) if self.nodes[parent].is_spelled && self.kind(node) != EntityKind::VarDecl => {
                Ok(Anchor {
                    node: parent,
                    statement,
                    context: Context::Condition { value, ty },
                })
            }
            _ => Err(Refusal::NoStatementAfter {
                context: "a condition whose value cannot be kept in a variable",
            }),
        }
    }

    fn in_return(&self, node: NodeId) -> Result<Anchor, Refusal> {
        let refuse = |context| Err(Refusal::NoStatementAfter { context });
        let statement = self.statement_range(node)?;
        if !self.nodes[node].is_spelled {
            return Err(self.macro_refusal(node));
        }
        let in_block = self.nodes[node]
            .parent
            .is_some_and(|outer| self.kind(outer) == EntityKind::CompoundStmt);
        let in_lambda = self
            .ancestors(node)
            .any(|outer| self.kind(outer) == EntityKind::LambdaExpr);
        if !in_block || in_lambda || !self.can_declare(node) {
            return refuse("a return that is not in a block of a function");
        }
        let Some(result) = self.nodes[0].entity.get_result_type() else {
            return refuse("a return from a function without a type");
        };
        let ty = match result.get_kind() {
            clang::TypeKind::Void => None,
            _ => match spelled_type(&result, self.unit.is_cxx()) {
                Some(ty) => Some(ty),
                None => return refuse("a return whose value cannot be kept in a variable"),
            },
        };
        let end = self.statement_end(node, &statement)?;
        Ok(Anchor {
            node,
            statement,
            context: Context::Return { end, ty },
        })
    }

    fn in_constructor(&self, node: NodeId) -> Result<Anchor, Refusal> {
        let body = self.nodes[0]
            .children
            .iter()
            .find(|child| self.kind(**child) == EntityKind::CompoundStmt && self.nodes[**child].is_spelled);
        match body {
            Some(body) => Ok(Anchor {
                node,
                statement: self.statement_range(node)?,
                context: Context::Constructor {
                    body: self.range(*body).start + 1,
                },
            }),
            None => Err(Refusal::NoStatementAfter {
                context: "a constructor without a body",
            }),
        }
    }
}

/// How a variable of the type is declared, if that is simply `TYPE name`.
pub(crate) fn spelled_type(ty: &clang::Type, is_cxx: bool) -> Option<String> {
    use clang::TypeKind::*;
    let canonical = ty.get_canonical_type();
    match canonical.get_kind() {
        Record if is_cxx => Some("auto".into()),
        Record => named(ty),
        Pointer if pointee_is_plain(&canonical) => named(ty),
        LValueReference | RValueReference | FunctionPrototype | FunctionNoPrototype | ConstantArray
        | IncompleteArray | VariableArray | Pointer | Void | Unexposed => None,
        _ => named(ty),
    }
}

fn pointee_is_plain(ty: &clang::Type) -> bool {
    use clang::TypeKind::*;
    let pointee = ty.get_pointee_type();
    pointee.is_some_and(|pointee| match pointee.get_kind() {
        FunctionPrototype | FunctionNoPrototype | ConstantArray | IncompleteArray | VariableArray => false,
        Pointer => pointee_is_plain(&pointee),
        _ => true,
    })
}

/// Unnamed types cannot be spelled; a qualifier of the value itself is of no use.
fn named(ty: &clang::Type) -> Option<String> {
    let name = ty.get_display_name();
    let name = name
        .strip_prefix("const ")
        .filter(|_| ty.is_const_qualified())
        .unwrap_or(&name);
    // libclang has no name for a type either where it could not make sense of the code.
    let is_nameless = ["unnamed", "anonymous", "dependent type", "("]
        .iter()
        .any(|mark| name.contains(mark));
    (!is_nameless).then(|| name.to_owned())
}

/// Of a variable, without its value.
pub(crate) fn declaration(ty: &str, variable: &str) -> String {
    match ty.ends_with('*') {
        true => format!("{ty}{variable}"),
        false => format!("{ty} {variable}"),
    }
}
