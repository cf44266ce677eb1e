//! Runs scripts on the store of a server in memory, with an embedded Lua 5.1, as Redis does.

use std::cell::RefCell;
use std::collections::HashMap;

use mlua::{Function, IntoLua, Lua, MultiValue, Table, Value};

use super::rules::Rule;
use super::store::{MemoryReply, Store};

/// A Lua interpreter with the scripts that it has compiled. Each thread has its own, since Lua is not thread-safe.
struct Interpreter {
    lua: Lua,
    compiled: HashMap<String, Function>,
}

thread_local! {
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
    /// The store of the server whose script is running.
    static STORE: RefCell<Store> = RefCell::default();
}

/// Hides `redis.acl_check_cmd` from a script.
const NO_ACL_CHECK: &str = "local redis = setmetatable({acl_check_cmd = false}, {__index = redis}) ";

/// Runs a script like `EVAL`. The digest identifies its text.
pub(crate) fn run(store: &mut Store, digest: &str, text: &str, keys: &[&[u8]], args: &[&[u8]]) -> MemoryReply {
    store.script_began = Some(store.ms());
    let checks_permissions = !store.rules.contains(&Rule::NoAclCheck);
    if !store.rules.is_empty() {
        store.script_keys = keys.iter().map(|key| key.to_vec()).collect();
    }
    STORE.with_borrow_mut(|current| std::mem::swap(current, store));
    let reply = INTERPRETER.with_borrow_mut(|interpreter| {
        if interpreter.is_none() {
            *interpreter = Interpreter::new().ok();
        }
        match interpreter {
            Some(interpreter) if checks_permissions => interpreter.run(digest, text, keys, args),
            Some(interpreter) => interpreter.run(&format!("{digest}-"), &format!("{NO_ACL_CHECK}{text}"), keys, args),
            None => MemoryReply::Error("ERR Lua does not start".into()),
        }
    });
    STORE.with_borrow_mut(|current| std::mem::swap(current, store));
    store.script_began = None;
    reply
}

impl Interpreter {
    fn new() -> mlua::Result<Interpreter> {
        let lua = Lua::new();
        // Scripts leave little garbage. It is collected when memory use has grown to ten times what was in use.
        lua.gc_set_pause(1000);
        let redis = lua.create_table()?;
        redis.set("call", lua.create_function(|_, words| command(&words, true))?)?;
        redis.set("pcall", lua.create_function(|_, words| command(&words, false))?)?;
        redis
            .set("error_reply", lua.create_function(|lua, text: mlua::String| field(lua, "err", &text.as_bytes()))?)?;
        // The user has all permissions.
        redis.set("acl_check_cmd", lua.create_function(|_, _: MultiValue| Ok(true))?)?;
        lua.globals().set("redis", redis)?;
        // Dragonfly's Lua 5.4 has it under this name too.
        lua.load("unpack = unpack or table.unpack").exec()?;
        Ok(Interpreter { lua, compiled: HashMap::new() })
    }

    fn run(&mut self, digest: &str, text: &str, keys: &[&[u8]], args: &[&[u8]]) -> MemoryReply {
        let replied = self.function(digest, text).and_then(|function| {
            let (keys, args) = (self.strings(keys)?, self.strings(args)?);
            converted(&function.call::<Value>((keys, args))?)
        });
        let failed = |error| MemoryReply::Error(format!("{} script: {digest}", message(&error)).into());
        replied.unwrap_or_else(failed)
    }

    fn function(&mut self, digest: &str, text: &str) -> mlua::Result<Function> {
        if let Some(function) = self.compiled.get(digest) {
            return Ok(function.clone());
        }
        // Prepended without a line break, so that line numbers in errors are right.
        let chunk = self.lua.load(format!("local KEYS, ARGV = ... {text}"));
        let function = chunk.set_name("@user_script").into_function()?;
        self.compiled.insert(digest.to_owned(), function.clone());
        Ok(function)
    }

    fn strings(&self, words: &[&[u8]]) -> mlua::Result<Table> {
        self.lua.create_sequence_from(words.iter().map(mlua::String::wrap))
    }
}

/// The error text that a server would send. For a failed command, its own error.
fn message(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => message(cause),
        mlua::Error::ExternalError(refused) => refused.to_string(),
        other => format!("ERR {}", other.to_string().lines().next().unwrap_or_default()),
    }
}

/// `redis.call` and `redis.pcall`.
fn command(words: &MultiValue, raises: bool) -> mlua::Result<MemoryReply> {
    let words: Vec<Vec<u8>> = words.iter().map(word).collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    match STORE.with_borrow_mut(|store| store.command_of_script(&words)) {
        MemoryReply::Error(message) if raises => Err(mlua::Error::external(message.into_owned())),
        reply => Ok(reply),
    }
}

/// Converts a reply to the value that scripts see.
impl IntoLua for MemoryReply {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        match self {
            MemoryReply::Nil => Ok(Value::Boolean(false)),
            MemoryReply::Int(n) => Ok(Value::Integer(n)),
            MemoryReply::Bulk(bytes) => lua.create_string(&bytes).map(Value::String),
            MemoryReply::List(items) => lua.create_sequence_from(items).map(Value::Table),
            MemoryReply::Ok => field(lua, "ok", b"OK"),
            MemoryReply::Error(message) => field(lua, "err", message.as_bytes()),
        }
    }
}

fn field(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.set(name, lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// A word of a command.
fn word(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(n) => n.to_string().into_bytes(),
        // Lua 5.1 has no such number. The text is that of Lua 5.4.
        Value::Number(n) if n.fract() == 0.0 => format!("{n:.1}").into_bytes(),
        Value::Number(n) => n.to_string().into_bytes(),
        other => format!("{other:?}").into_bytes(),
    }
}

/// Converts the value that a script returns to the server's reply.
#[allow(clippy::cast_possible_truncation, reason = "as a server does")]
fn converted(value: &Value) -> mlua::Result<MemoryReply> {
    Ok(match value {
        Value::Integer(n) => MemoryReply::Int(*n),
        Value::Number(n) => MemoryReply::Int(*n as i64),
        Value::String(text) => MemoryReply::Bulk(text.as_bytes().to_vec()),
        Value::Boolean(true) => MemoryReply::Int(1),
        Value::Table(table) => {
            if table.raw_len() > 0 {
                let items = table.sequence_values::<Value>().map(|item| converted(&item?));
                return Ok(MemoryReply::List(items.collect::<mlua::Result<_>>()?));
            }
            if let Some(message) = table.raw_get::<Option<String>>("err")? {
                return Ok(MemoryReply::Error(message.into()));
            }
            let is_ok = table.raw_get::<Option<String>>("ok")?.is_some();
            if is_ok { MemoryReply::Ok } else { MemoryReply::List(Vec::new()) }
        }
        _ => MemoryReply::Nil,
    })
}
