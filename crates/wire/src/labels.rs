//! The second narrow waist: the functions that code built by `crashproof cc --deps` calls to have its
//! dependences followed. The compiler pass emits calls of the gates of these functions. The runtime
//! implements the functions over a label domain of its choice. The two share nothing else.
//!
//! A *label* is a number that stands for the values that a value was computed from; 0 is the empty label.
//! Only the domain knows the meaning of any other label. Gates, slot, note and calling convention are those
//! of [`crate::hooks`]. Without a runtime, every gate returns 0, the empty label, and the code behaves as if
//! it had been built without `--deps`.
//!
//! Every function of the program that was built with `--deps` gets the number of its *frame* at entry. The
//! runtime attributes open branches to frames by this number.

use crate::hooks::table;

/// Version of the functions. It changes with every change of the list; the runtime ignores modules of another
/// version.
pub const VERSION: u32 = 1;

/// Symbol of the word in each linked module that points to the runtime's [`Labels`].
pub const SLOT: &str = "__crashproof_labels";

/// Name of the note by which the runtime finds the slot, as [`crate::hooks::NOTE_NAME`]. The note's type is
/// [`VERSION`].
pub const NOTE_NAME: &str = "crashproof-deps";

/// Largest number of loads that a label stands for. A label with more members loses those that are farthest
/// away.
pub const MOST_MEMBERS: usize = 64;

/// Number of arguments of a call that carry labels. Later arguments carry none.
pub const MOST_ARGUMENTS: usize = 32;

table! {
    /// A function of the runtime that follows dependences.
    enum LabelHook;
    /// The runtime's table of these functions. The types of the fields only have the right size, as in
    /// [`Hooks`](crate::hooks::Hooks).
    struct Labels {}
    /// (a, b, operation): the label of the result of an operation, given the labels of its operands. The
    /// operation is LLVM's opcode.
    Combine combine "__crashproof_label_combine"
    /// (label): the label that has the same members as control dependences.
    Control control "__crashproof_label_control"
    /// (address, length, label of the address): a load. The result is the label of the loaded value.
    Load load "__crashproof_label_load"
    /// (address, length, label of the value, label of the address): a store follows; none if the length is 0.
    Store store "__crashproof_label_store"
    /// (from, length, label of the address): the range that the copy after this call reads.
    Source source "__crashproof_label_source"
    /// (to, from, length, labels of both addresses): a copy of bytes follows. The label of `to` is in the
    /// upper half of the last argument.
    Copy copy "__crashproof_label_copy"
    /// (address, length): code that is not labelled has written the range.
    Written written "__crashproof_label_written"
    /// (one, other, most): the number of bytes that a comparison of two strings reads from each: up to and
    /// including the first difference or the terminating zero byte, and no more than `most`.
    Compared compared "__crashproof_label_compared"
    /// (address, most): the length of a string with its terminating zero byte, but no more than `most`.
    Text text "__crashproof_label_text"
    /// (address, length): the range is fresh memory, whose bytes have the empty label.
    Fresh fresh "__crashproof_label_fresh"
    /// (address of the function): a frame begins. The result is its number.
    Enter enter "__crashproof_label_enter"
    /// (index): the label of an argument of the frame that has just begun.
    Argument argument "__crashproof_label_argument"
    /// (frame, address of the function, label): a frame ends and returns a value with that label.
    Leave leave "__crashproof_label_leave"
    /// (address of the callee, number of arguments): a call follows after [`LabelHook::Pass`] has passed its
    /// labels.
    Call call "__crashproof_label_call"
    /// (index, label): the label of an argument of the call that follows.
    Pass pass "__crashproof_label_pass"
    /// (address of the callee): the label of the value that a call returned.
    Result result "__crashproof_label_result"
    /// (frame, branch, block, label): a branch whose condition has that label. It is open until the block is
    /// entered or the frame ends.
    Branch branch "__crashproof_label_branch"
    /// (frame, block): a block is entered that may close branches. The result is their labels as control
    /// dependences.
    Join join "__crashproof_label_join"
    /// (frame): the number of branches of the frame that are open.
    Depth depth "__crashproof_label_depth"
    /// (frame, depth): control has come back to the frame by an exception or a second return (`longjmp`). Of
    /// the frame's open branches only the first `depth` stay open.
    Restore restore "__crashproof_label_restore"
    /// (address of the flags, number of blocks, object): announces, at start, an array with a byte for each
    /// block of an object. The code sets a byte when it executes the block.
    Blocks blocks "__crashproof_label_blocks"
}

/// Depth for [`LabelHook::Restore`] that leaves all branches of the frame open.
pub const ALL_OPEN: u64 = u64::MAX;

/// The shortcut by which the function's gate avoids a call of the runtime.
pub const fn shortcut(hook: LabelHook) -> Shortcut {
    match hook {
        LabelHook::Combine => Shortcut::EitherZeroOrSame,
        LabelHook::Control => Shortcut::FirstZero,
        LabelHook::Pass => Shortcut::SecondZero,
        _ => Shortcut::None,
    }
}

/// A case in which a gate finds the result in the arguments and calls nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortcut {
    /// There is no such case.
    None,
    /// If one of the first two arguments is 0, the result is the other; if they are equal, it is either.
    EitherZeroOrSame,
    /// If the first argument is 0, the result is 0.
    FirstZero,
    /// If the second argument is 0, the result is 0.
    SecondZero,
}
