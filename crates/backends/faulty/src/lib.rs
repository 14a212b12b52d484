//! A backend that wraps another and fails on command.
