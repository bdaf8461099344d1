//! Links kloop at a fixed address, as Go does with Kubernetes' own programs. Each start would otherwise write 63,000 addresses into 1 MB of
//! memory of its own, and that is a third of the time that a command takes. The stack, the heap and the libraries keep random addresses.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=.cargo/build.rs");
    let is = |name: &str, value: &str| var(name).as_deref() == Ok(value);
    let is_static =
        var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|features| features.split(',').any(|one| one == "crt-static"));
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && !is_static {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
