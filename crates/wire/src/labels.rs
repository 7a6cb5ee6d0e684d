//! The second narrow waist: what code built by `crashproof cc --deps` calls to have its dependences followed. The pass emits calls to the
//! gates of these functions, the runtime implements them over a label domain of its choice; nothing else is shared.
//!
//! A *label* stands for what a value was computed from; 0 is the empty one. What a label means is the domain's business. Gates, slot, note and calling
//! convention are those of [`crate::hooks`]. Without a runtime every gate returns 0, the empty label, and the code does what it always did.
//!
//! Every function of the program that was built so counts its *frame* at entry; frames tell whose branches are open.

use crate::hooks::table;

/// Changes with every change of the functions; the runtime leaves modules of another version alone.
pub const VERSION: u32 = 1;

/// The word of each linked module that points to the runtime's [`Labels`].
pub const SLOT: &str = "__crashproof_labels";

/// Name of the note, type [`VERSION`], as [`crate::hooks::NOTE_NAME`].
pub const NOTE_NAME: &str = "crashproof-deps";

/// A label that has more members loses those that are farthest away.
pub const MOST_MEMBERS: usize = 64;

/// Arguments of a call beyond this carry no labels.
pub const MOST_ARGUMENTS: usize = 32;

table! {
    enum LabelHook;
    struct Labels {}
    /// (a, b, operation): the label of what an operation (LLVM's opcode) makes of two operands.
    Combine combine "__crashproof_label_combine"
    /// (label): the same members, as control dependences.
    Control control "__crashproof_label_control"
    /// (address, length, label of the address): a load. The label of the value.
    Load load "__crashproof_label_load"
    /// (address, length, label of the value, label of the address): a store, before it. Of length 0: none.
    Store store "__crashproof_label_store"
    /// (from, length, label of the address): what the copy that follows reads.
    Source source "__crashproof_label_source"
    /// (to, from, length, labels of both addresses, that of `to` in the upper half): bytes copied, before they are.
    Copy copy "__crashproof_label_copy"
    /// (address, length): written by code that nothing is known of.
    Written written "__crashproof_label_written"
    /// (one, other, most): how many bytes two strings are compared for: up to the first difference, the end or so many.
    Compared compared "__crashproof_label_compared"
    /// (address, most): how many bytes a string has, with its end, but no more than so many.
    Text text "__crashproof_label_text"
    /// (address, length): fresh memory, which holds nothing.
    Fresh fresh "__crashproof_label_fresh"
    /// (function): a frame begins. Its number.
    Enter enter "__crashproof_label_enter"
    /// (index): the label of an argument of the frame that has just begun.
    Argument argument "__crashproof_label_argument"
    /// (frame, function, label): a frame ends, and returns a value with that label.
    Leave leave "__crashproof_label_leave"
    /// (callee, arguments): a call follows, once its labels have been passed.
    Call call "__crashproof_label_call"
    /// (index, label): the label of an argument of the call that follows.
    Pass pass "__crashproof_label_pass"
    /// (callee): the label of what a call returned.
    Result result "__crashproof_label_result"
    /// (frame, branch, block, label): a branch with a condition of that label, open until that block is entered or the frame ends.
    Branch branch "__crashproof_label_branch"
    /// (frame, block): a block is entered that may close branches. Their labels, as control.
    Join join "__crashproof_label_join"
    /// (frame): how many of its branches are open.
    Depth depth "__crashproof_label_depth"
    /// (frame, depth): control is back in the frame without its callees having returned; so many of its branches are open.
    Restore restore "__crashproof_label_restore"
    /// (flags, blocks, object): at start: a byte for each block of an object, which is set when the block is executed.
    Blocks blocks "__crashproof_label_blocks"
}

/// A depth that restores all.
pub const ALL_OPEN: u64 = u64::MAX;

/// The gates of these do without a call where the answer is in the arguments.
pub const fn shortcut(hook: LabelHook) -> Shortcut {
    match hook {
        LabelHook::Combine => Shortcut::EitherZeroOrSame,
        LabelHook::Control => Shortcut::FirstZero,
        LabelHook::Pass => Shortcut::SecondZero,
        _ => Shortcut::None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortcut {
    None,
    /// Of two arguments the one that is not 0, if the other is, or if they are the same.
    EitherZeroOrSame,
    /// 0 if the argument is 0.
    FirstZero,
    SecondZero,
}
