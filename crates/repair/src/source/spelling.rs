//! Writes an expression again: the address and size of what was written, as a maintainer would.

use std::collections::BTreeMap;

use clang::{Entity, EntityKind, TypeKind};

use super::refusal::Refusal;
use super::tree::{FunctionTree, NodeId};
use super::written::{Flushed, Object, Pointer, Size, Target, Write};

/// Expressions that are to be written differently, e.g. `p++` as `p - 1` behind the statement that has it.
pub(crate) type Substitutions = BTreeMap<NodeId, String>;

impl<'a> FunctionTree<'a> {
    pub(crate) fn flushed(&self, write: &Write, substitutions: &Substitutions) -> Result<Flushed, Refusal> {
        let spell = |node| self.spell(node, substitutions);
        let plain = |address: String, size: String, node| Flushed {
            address,
            size,
            pointer: self.pointer(node),
            member_of: None,
            is_in_one_line: false,
        };
        match write.target {
            Target::Lvalue(node) => self.flushed_lvalue(node, substitutions),
            Target::Pointee(node) => {
                // `&p->a` is a pointer to what `p->a` is.
                let stripped = self.strip(node);
                if let Some((operator, _)) = self.unary_operator(stripped)
                    && operator == "&"
                    && let Some(operand) = self.child(stripped, 0)
                {
                    return self.flushed_lvalue(operand, substitutions);
                }
                let pointer = spell(node)?;
                let size = self.sizeof(&self.pointee(node, &pointer));
                Ok(Flushed {
                    is_in_one_line: true,
                    ..plain(pointer, size, node)
                })
            }
            Target::Range { address, size } => {
                let text = spell(address)?;
                let is_sum = |node| matches!(self.name(self.strip(node)).as_str(), "*" | "+" | "-");
                let summand = match size {
                    Size::Bytes(size) if !is_sum(size) => Some(self.as_factor(size, &spell(size)?)),
                    _ => None,
                };
                let bytes = match size {
                    Size::Bytes(size) => self.constant(size),
                    _ => None,
                };
                let is_within = |length: u64| bytes.is_some_and(|bytes| bytes <= length);
                let size = match size {
                    Size::Bytes(size) => spell(size)?,
                    Size::Elements(size, count) => {
                        format!(
                            "{} * {}",
                            self.as_factor(size, &spell(size)?),
                            self.as_factor(count, &spell(count)?)
                        )
                    }
                    Size::Wide(count) => format!("{} * sizeof(wchar_t)", self.as_factor(count, &spell(count)?)),
                    Size::String => self.string_size(&text),
                };
                let member_of = self
                    .object_before(address, summand.as_ref().unwrap_or(&size), substitutions)
                    .or_else(|| {
                        self.object_around(address, substitutions)
                            .filter(|object| is_within(object.length))
                    });
                Ok(Flushed {
                    member_of,
                    ..plain(text, size, address)
                })
            }
            Target::Member(node) => {
                let name = self.name(node);
                let field = self.nodes[node].entity.get_reference();
                if field.is_some_and(|field| field.is_bit_field()) {
                    return Ok(plain("this".into(), self.sizeof("*this"), node));
                }
                Ok(Flushed {
                    is_in_one_line: self.is_scalar(node),
                    ..plain(format!("&{name}"), self.sizeof(&name), node)
                })
            }
        }
    }

    fn flushed_lvalue(&self, node: NodeId, substitutions: &Substitutions) -> Result<Flushed, Refusal> {
        let node = self.strip_parentheses(node);
        let spell = |node| self.spell(node, substitutions);
        let pointer = self.lvalue_pointer(node);
        let is_in_one_line = self.is_scalar(node);
        let field = || {
            self.nodes[node]
                .entity
                .get_reference()
                .filter(|field| field.get_kind() == EntityKind::FieldDecl)
        };
        if self.kind(node) == EntityKind::MemberRefExpr
            && let Some(field) = field()
        {
            let object = self.object(node, &field, substitutions)?;
            if field.is_bit_field() {
                return Ok(Flushed {
                    address: object.address,
                    size: object.size,
                    pointer,
                    member_of: None,
                    is_in_one_line: false,
                });
            }
            let text = spell(node)?;
            return Ok(Flushed {
                address: format!("&{text}"),
                size: self.sizeof(&text),
                pointer,
                member_of: Some(object),
                is_in_one_line,
            });
        }
        let array = self
            .child(node, 0)
            .filter(|_| self.kind(node) == EntityKind::ArraySubscriptExpr);
        let member_of = array.and_then(|array| self.object_around(array, substitutions));
        let (address, size) = match self.unary_operator(node) {
            Some((operator, _)) if operator == "*" => {
                let operand = self.strip_parentheses(self.child(node, 0).unwrap_or(node));
                self.pointer_and_size(operand, &spell(operand)?)
            }
            _ => {
                let text = spell(node)?;
                (format!("&{text}"), self.sizeof(&text))
            }
        };
        Ok(Flushed {
            address,
            size,
            pointer,
            member_of,
            is_in_one_line,
        })
    }

    /// The object that an array is a member of, the whole array as the member.
    fn object_around(&self, array: NodeId, substitutions: &Substitutions) -> Option<Object> {
        let node = self.strip_parentheses(self.strip(array));
        let field = self.nodes[node]
            .entity
            .get_reference()
            .filter(|field| field.get_kind() == EntityKind::FieldDecl)?;
        let is_array = field.get_type()?.get_canonical_type().get_kind() == TypeKind::ConstantArray;
        match is_array && self.kind(node) == EntityKind::MemberRefExpr {
            true => self.object(node, &field, substitutions).ok(),
            false => None,
        }
    }

    fn constant(&self, node: NodeId) -> Option<u64> {
        match self.nodes[self.strip(node)].entity.evaluate()? {
            clang::EvaluationResult::SignedInteger(value) => u64::try_from(value).ok(),
            clang::EvaluationResult::UnsignedInteger(value) => Some(value),
            _ => None,
        }
    }

    /// `*p` is `p, sizeof(*p)`; `*(T *)p`, of a pointer p, is `p, sizeof(T)`.
    fn pointer_and_size(&self, operand: NodeId, text: &str) -> (String, String) {
        let cast = self.strip(operand);
        if self.kind(cast) == EntityKind::CStyleCastExpr
            && self.nodes[cast].is_spelled
            && let Some(inner) = self.nodes[cast].children.last()
            && let Some(inner_type) = self.ty(*inner)
            && inner_type.get_canonical_type().get_kind() == TypeKind::Pointer
            && let Some(close) = text.find(')')
            && let Some(ty) = text[1..close].trim_end().strip_suffix('*')
            && !ty.contains(['(', '*'])
        {
            let inner = text[close + 1..].trim();
            let inner = match inner.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
                Some(plain) if !plain.contains(['(', ')']) => plain,
                _ => inner,
            };
            return (inner.into(), format!("sizeof({})", ty.replace("volatile ", "").trim()));
        }
        // Behind `p++`, which was, the size is that of `*p`.
        let sized = text
            .rsplit_once(" - 1")
            .or(text.rsplit_once(" + 1"))
            .map_or(text, |(name, _)| name);
        (text.into(), self.sizeof(&self.pointee(operand, sized)))
    }

    /// The struct that a member belongs to; of members of anonymous structs, the named one around them.
    fn object(&self, node: NodeId, field: &Entity<'a>, substitutions: &Substitutions) -> Result<Object, Refusal> {
        let (address, size, ty) = match self.child(node, 0).filter(|base| !self.range(*base).is_empty()) {
            None => ("this".to_owned(), self.sizeof("*this"), None),
            Some(base) => {
                let mut base = self.strip_parentheses(base);
                // Through anonymous structs and unions, which the text does not name.
                while self.kind(base) == EntityKind::MemberRefExpr
                    && self.name(base).is_empty()
                    && let Some(outer) = self.child(base, 0)
                {
                    base = self.strip_parentheses(outer);
                }
                let ty = self.ty(base).map(|ty| ty.get_canonical_type());
                let text = self.spell(base, substitutions)?;
                match ty.and_then(|ty| ty.get_pointee_type()) {
                    Some(pointee) => {
                        let size = self.sizeof(&self.pointee(base, &text));
                        (text, size, Some(pointee))
                    }
                    None => (format!("&{text}"), self.sizeof(&text), ty),
                }
            }
        };
        let bytes = ty.and_then(|ty| ty.get_sizeof().ok()).unwrap_or(usize::MAX) as u64;
        Ok(Object {
            address,
            size,
            bytes,
            offset: field.get_offset_of_field().unwrap_or(0) as u64 / 8,
            length: self.ty(node).and_then(|ty| ty.get_sizeof().ok()).unwrap_or(0) as u64,
            tail: None,
        })
    }

    /// The object whose flexible array member, with nothing between it and the end of the struct, begins at an address.
    fn object_before(&self, address: NodeId, size: &str, substitutions: &Substitutions) -> Option<Object> {
        let node = self.strip_parentheses(self.strip(address));
        let field = self.nodes[node]
            .entity
            .get_reference()
            .filter(|field| field.get_kind() == EntityKind::FieldDecl)?;
        if self.kind(node) != EntityKind::MemberRefExpr
            || field.get_type()?.get_canonical_type().get_kind() != TypeKind::IncompleteArray
        {
            return None;
        }
        let object = self.object(node, &field, substitutions).ok()?;
        (object.offset == object.bytes).then(|| Object {
            length: 0,
            tail: Some(size.to_owned()),
            ..object
        })
    }

    /// Of a string and its zero.
    pub(crate) fn string_size(&self, string: &str) -> String {
        // Who calls sprintf need not have included <string.h>.
        let strlen = if self.declares("strlen") {
            "strlen"
        } else {
            "__builtin_strlen"
        };
        format!("{strlen}({string}) + 1")
    }

    /// Of an expression, in the style of the file.
    pub(crate) fn sizeof(&self, expression: &str) -> String {
        match self.file.has_bare_sizeof() {
            true => format!("sizeof {expression}"),
            false => format!("sizeof({expression})"),
        }
    }

    fn strip_parentheses(&self, mut node: NodeId) -> NodeId {
        loop {
            let child = match (self.kind(node), &self.nodes[node].children[..]) {
                (EntityKind::ParenExpr, [child]) => *child,
                (EntityKind::UnexposedExpr, [child]) if self.range(*child) == self.range(node) => *child,
                _ => return node,
            };
            node = child;
        }
    }

    fn pointer(&self, node: NodeId) -> Pointer {
        let node = self.strip(node);
        let ty = self.ty(node).map(|ty| ty.get_canonical_type());
        let pointee = ty.and_then(|ty| ty.get_pointee_type().or(ty.get_element_type()));
        pointee.map_or_else(Pointer::default, pointer_to)
    }

    pub(crate) fn lvalue_pointer(&self, node: NodeId) -> Pointer {
        self.ty(node).map_or_else(Pointer::default, pointer_to)
    }

    pub(crate) fn is_scalar(&self, node: NodeId) -> bool {
        let Some(ty) = self.ty(node) else {
            return false;
        };
        // An attribute such as packed may take the alignment away.
        let is_aligned = ty
            .get_alignof()
            .ok()
            .zip(ty.get_sizeof().ok())
            .is_some_and(|(align, size)| align == size);
        let in_packed = self.nodes[node].entity.get_reference().is_some_and(|field| {
            field.get_kind() == EntityKind::FieldDecl
                && !field.get_offset_of_field().is_ok_and(|bits| {
                    let bytes = ty.get_sizeof().unwrap_or(1).max(1);
                    bits % (8 * bytes) == 0
                })
        });
        let record_is_packed = self.nodes[node]
            .entity
            .get_reference()
            .and_then(|field| field.get_semantic_parent())
            .is_some_and(|record| {
                record
                    .get_children()
                    .iter()
                    .any(|child| child.get_kind() == EntityKind::PackedAttr)
            });
        is_aligned && !in_packed && !record_is_packed
    }

    /// What a pointer expression points to.
    fn pointee(&self, node: NodeId, text: &str) -> String {
        match text.strip_prefix('&') {
            Some(object) => object.into(),
            None => format!("*{}", self.as_operand(node, text)),
        }
    }

    /// The text of an expression behind a unary operator.
    fn as_operand(&self, node: NodeId, text: &str) -> String {
        use EntityKind::*;
        let is_primary = matches!(
            self.kind(self.strip_parentheses(node)),
            DeclRefExpr | MemberRefExpr | ArraySubscriptExpr | CallExpr | ThisExpr | CStyleCastExpr | UnaryOperator
        );
        match is_primary || text.chars().all(super::text::is_word_character) {
            true => text.into(),
            false => format!("({text})"),
        }
    }

    fn as_factor(&self, node: NodeId, text: &str) -> String {
        use EntityKind::*;
        match self.kind(self.strip(node)) {
            BinaryOperator | ConditionalOperator | CompoundAssignOperator => format!("({text})"),
            _ => text.into(),
        }
    }

    /// The expression as text that means the same behind the statement.
    pub(crate) fn spell(&self, node: NodeId, substitutions: &Substitutions) -> Result<String, Refusal> {
        if let Some(text) = substitutions.get(&node) {
            return Ok(text.clone());
        }
        let here = &self.nodes[node];
        if here.is_spelled || self.is_whole_macro_use(node) {
            return Ok(self.verbatim(node, substitutions));
        }
        let not_nameable = || Refusal::NotNameable {
            what: format!(
                "a part of the macro {}",
                self.macro_around(&here.range).map_or("", |(_, name)| name)
            ),
        };
        let child = |index| self.child(node, index).ok_or_else(not_nameable);
        let spell = |node| self.spell(node, substitutions);
        match here.kind {
            EntityKind::UnexposedExpr => spell(child(0)?),
            EntityKind::ParenExpr => {
                let inner = self.strip_parentheses(node);
                let text = spell(inner)?;
                Ok(match self.as_operand(inner, &text) == text {
                    true => text,
                    false => format!("({text})"),
                })
            }
            EntityKind::MemberRefExpr => {
                let base = child(0)?;
                let is_arrow = self
                    .ty(base)
                    .is_some_and(|ty| ty.get_canonical_type().get_kind() == TypeKind::Pointer);
                let text = spell(base)?;
                let text = match self.kind(self.strip_parentheses(base)) {
                    EntityKind::UnaryOperator | EntityKind::CStyleCastExpr => format!("({text})"),
                    _ => self.as_operand(base, &text),
                };
                Ok(format!(
                    "{text}{}{}",
                    if is_arrow { "->" } else { "." },
                    self.name(node)
                ))
            }
            EntityKind::ArraySubscriptExpr => Ok(format!(
                "{}[{}]",
                self.as_operand(child(0)?, &spell(child(0)?)?),
                spell(child(1)?)?
            )),
            EntityKind::UnaryOperator => {
                let (operator, is_postfix) = self.unary_operator(node).ok_or_else(not_nameable)?;
                if is_postfix || !matches!(operator.as_str(), "*" | "&" | "-") {
                    return Err(not_nameable());
                }
                Ok(format!("{operator}{}", self.as_operand(child(0)?, &spell(child(0)?)?)))
            }
            // What the macro itself declares does not reach beyond it.
            EntityKind::DeclRefExpr => {
                let declared = here.entity.get_reference().and_then(|entity| entity.get_location());
                let at = declared.map(|location| location.get_file_location().offset as usize);
                let is_inside = at.is_some_and(|at| {
                    self.macro_around(&here.range)
                        .is_some_and(|(used, _)| used.contains(&at))
                });
                match is_inside && self.local_variable(node).is_some() {
                    true => Err(not_nameable()),
                    false => Ok(self.name(node)),
                }
            }
            EntityKind::IntegerLiteral => match here.entity.evaluate() {
                Some(clang::EvaluationResult::SignedInteger(value)) => Ok(value.to_string()),
                Some(clang::EvaluationResult::UnsignedInteger(value)) => Ok(value.to_string()),
                _ => Err(not_nameable()),
            },
            _ => Err(not_nameable()),
        }
    }

    /// The use of a macro without which nothing of the expression is left, such as `ROOT` for `(pool->root)` in `ROOT = x`.
    fn is_whole_macro_use(&self, node: NodeId) -> bool {
        let range = self.range(node);
        let parent = self.nodes[node].parent.map(|parent| self.range(parent));
        self.macro_around(&range).is_some_and(|(used, _)| {
            *used == range
                && parent.is_some_and(|parent| parent.start < used.start || used.end < parent.end)
                // Arguments with side effects are not repeated.
                && self.file.next_token(used.end).is_some_and(|token| {
                    ["=", "+=", "-=", "|=", "&=", "^=", "++", "--", "->", ".", "[", ")", ","].contains(&self.file.token_text(token))
                })
        })
    }

    fn verbatim(&self, node: NodeId, substitutions: &Substitutions) -> String {
        let range = self.range(node);
        let mut text = String::new();
        let mut from = range.start;
        for inner in self.descendants(node) {
            let Some(substitute) = substitutions.get(&inner) else {
                continue;
            };
            let at = self.range(inner);
            if at.start < from || at.end > range.end {
                continue;
            }
            let in_subscript = self.nodes[inner]
                .parent
                .is_some_and(|parent| self.kind(parent) == EntityKind::ArraySubscriptExpr)
                && self.file.text[..at.start].ends_with('[');
            text.push_str(&self.file.text[from..at.start]);
            match in_subscript || substitute.chars().all(super::text::is_word_character) {
                true => text.push_str(substitute),
                false => text.push_str(&format!("({substitute})")),
            }
            from = at.end;
        }
        text.push_str(&self.file.text[from..range.end]);
        // An expression over several lines becomes one, without the comments in between.
        let text: String = match text.contains('\n') && !text.contains('"') {
            true => text
                .lines()
                .map(|line| line.split("//").next().unwrap_or(line))
                .collect::<Vec<_>>()
                .join(" "),
            false => text,
        };
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

fn pointer_to(pointee: clang::Type) -> Pointer {
    Pointer {
        is_const_or_volatile: pointee.is_const_qualified() || pointee.is_volatile_qualified(),
        is_char: matches!(
            pointee.get_canonical_type().get_kind(),
            TypeKind::CharS | TypeKind::CharU | TypeKind::SChar | TypeKind::UChar
        ),
    }
}
