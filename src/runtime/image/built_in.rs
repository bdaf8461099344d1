//! The images that are known without an Image object: base images, and programs that are not named like their image.

/// An image that is known without an Image object, by the last part of its repository.
pub struct BuiltIn {
    /// That part.
    pub name: &'static str,
    /// The program: the first of these that is there.
    pub programs: &'static [&'static str],
    /// The arguments of a container that has none.
    pub command: &'static [&'static str],
    /// Whether it has no entrypoint, so that `args` alone are the whole command.
    pub is_bare: bool,
}

const fn program(name: &'static str, programs: &'static [&'static str], command: &'static [&'static str]) -> BuiltIn {
    BuiltIn { name, programs, command, is_bare: false }
}

const fn bare(name: &'static str, programs: &'static [&'static str]) -> BuiltIn {
    BuiltIn { name, programs, command: &[], is_bare: true }
}

/// The built-in images: base images, and programs that are not named like their image.
pub const BUILT_IN: [BuiltIn; 20] = [
    bare("alpine", &["sh"]),
    bare("bash", &["bash", "sh"]),
    bare("busybox", &["sh"]),
    bare("debian", &["bash", "sh"]),
    program("eclipse-temurin", &["java"], &[]),
    program("golang", &["go"], &[]),
    program("httpd", &["httpd", "apache2"], &["-DFOREGROUND"]),
    program("mariadb", &["mariadbd", "mysqld"], &[]),
    program("mongo", &["mongod"], &[]),
    program("mysql", &["mysqld"], &[]),
    program("nginx", &["nginx"], &["-g", "daemon off;"]),
    program("nginx-unprivileged", &["nginx"], &["-g", "daemon off;"]),
    program("node", &["node", "nodejs"], &[]),
    program("openjdk", &["java"], &[]),
    program("pause", &["sleep"], &["infinity"]),
    program("pause-amd64", &["sleep"], &["infinity"]),
    program("postgres", &["postgres"], &[]),
    program("python", &["python3", "python"], &[]),
    program("redis", &["redis-server"], &[]),
    bare("ubuntu", &["bash", "sh"]),
];
