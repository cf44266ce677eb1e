//! Runs the library's own scripts, as they are, on the store of an in-memory node.

use std::cell::RefCell;
use std::collections::HashMap;

use mlua::{Function, Lua, MultiValue, Value as LuaValue};

use super::store::{Reply, Store};
use crate::node::{Executed, Failure, Trouble, Value};
use crate::script::{ACQUIRE, EXTEND, FENCE, INSPECT, PUBLISH, RELEASE, RELEASE_ALL, Script, UNRESERVE};

/// The file of a script; of one that is not the library's what it does.
pub(super) fn name(script: &Script) -> &'static str {
    let files = [
        (&ACQUIRE, "acquire"),
        (&EXTEND, "extend"),
        (&FENCE, "fence"),
        (&INSPECT, "inspect"),
        (&RELEASE, "release"),
        (&RELEASE_ALL, "release_all"),
        (&PUBLISH, "publish"),
        (&UNRESERVE, "unreserve"),
    ];
    files.iter().find(|(known, _)| std::ptr::eq(&raw const ***known, script)).map_or(script.operation, |(_, file)| file)
}

/// Lua and the scripts that it has compiled.
struct Machine {
    lua: Lua,
    compiled: HashMap<String, Function>,
}

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
    /// The store of the node whose script runs.
    static STORE: RefCell<Store> = RefCell::default();
}

/// Runs a script as EVAL does.
pub(super) fn run(store: &mut Store, script: &Script, keys: &[String], args: &[String]) -> Result<Value, Failure> {
    store.script_begins();
    STORE.with_borrow_mut(|current| std::mem::swap(current, store));
    let reply = MACHINE.with_borrow_mut(|machine| machine.get_or_insert_with(Machine::new).run(script, keys, args));
    STORE.with_borrow_mut(|current| std::mem::swap(current, store));
    store.script_ends();
    reply
}

impl Machine {
    fn new() -> Machine {
        let lua = Lua::new();
        let redis = lua.create_table().unwrap();
        redis.set("call", lua.create_function(|lua, args| command(lua, &args, true)).unwrap()).unwrap();
        redis.set("pcall", lua.create_function(|lua, args| command(lua, &args, false)).unwrap()).unwrap();
        lua.globals().set("redis", redis).unwrap();
        Machine { lua, compiled: HashMap::new() }
    }

    fn run(&mut self, script: &Script, keys: &[String], args: &[String]) -> Result<Value, Failure> {
        if !self.compiled.contains_key(&script.sha) {
            // On the script's first line, so that the lines of errors are right.
            let chunk = self.lua.load(format!("local KEYS, ARGV = ... {}", script.source));
            let function = chunk.set_name(name(script)).into_function().unwrap();
            self.compiled.insert(script.sha.clone(), function);
        }
        let table = |texts: &[String]| self.lua.create_sequence_from(texts.iter().map(String::as_str));
        let (keys, args) = (table(keys).unwrap(), table(args).unwrap());
        match self.compiled[&script.sha].call::<LuaValue>((keys, args)) {
            Ok(value) => converted(&value),
            Err(error) => Err(failure(&error.to_string())),
        }
    }
}

/// `redis.call` and `redis.pcall`.
fn command(lua: &Lua, args: &MultiValue, raises: bool) -> mlua::Result<LuaValue> {
    let texts: Vec<Argument> = args.iter().map(Argument::new).collect();
    let mut slices = [&b""[..]; MOST_ARGUMENTS];
    for (slice, text) in slices.iter_mut().zip(&texts) {
        *slice = text.bytes();
    }
    let bulk = |bytes: &[u8]| lua.create_string(bytes).map(LuaValue::String);
    match STORE.with_borrow_mut(|store| store.command(&slices[..texts.len()])) {
        Reply::Nil => Ok(LuaValue::Boolean(false)),
        Reply::Int(n) => Ok(LuaValue::Number(n as f64)),
        Reply::Bulk(bytes) => bulk(&bytes),
        Reply::List(items) => {
            let items = items.iter().map(|item| bulk(item)).collect::<mlua::Result<Vec<_>>>()?;
            lua.create_sequence_from(items).map(LuaValue::Table)
        }
        Reply::Some(items) => {
            let item = |item: &Option<Vec<u8>>| item.as_ref().map_or(Ok(LuaValue::Boolean(false)), |bytes| bulk(bytes));
            let items = items.iter().map(item).collect::<mlua::Result<Vec<_>>>()?;
            lua.create_sequence_from(items).map(LuaValue::Table)
        }
        Reply::Ok => field(lua, "ok", "OK"),
        Reply::Error(message) if raises => Err(mlua::Error::runtime(message)),
        Reply::Error(message) => field(lua, "err", message),
    }
}

fn field(lua: &Lua, name: &str, text: &str) -> mlua::Result<LuaValue> {
    let table = lua.create_table()?;
    table.set(name, text)?;
    Ok(LuaValue::Table(table))
}

/// Most words of a command in the scripts.
const MOST_ARGUMENTS: usize = 8;

/// A word of a command.
enum Argument<'a> {
    Text(mlua::BorrowedBytes<'a>),
    /// A number as Redis writes it.
    Number(String),
}

impl Argument<'_> {
    fn new(value: &LuaValue) -> Argument<'_> {
        match value {
            LuaValue::String(text) => Argument::Text(text.as_bytes()),
            LuaValue::Integer(n) => Argument::Number(n.to_string()),
            // Redis writes whole numbers without a point too.
            LuaValue::Number(n) if n.fract() == 0.0 && n.abs() < 1e15 => Argument::Number((*n as i64).to_string()),
            LuaValue::Number(n) => Argument::Number(n.to_string()),
            other => Argument::Number(format!("{other:?}")),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Argument::Text(text) => text,
            Argument::Number(text) => text.as_bytes(),
        }
    }
}

/// What a script returns, as the server sends it.
fn converted(value: &LuaValue) -> Result<Value, Failure> {
    Ok(match value {
        LuaValue::Integer(n) => Value::Int(*n),
        LuaValue::Number(n) => Value::Int(*n as i64),
        LuaValue::String(text) => Value::Text(text.as_bytes().to_vec()),
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Table(table) => {
            if let Ok(Some(message)) = table.raw_get::<Option<String>>("err") {
                return Err(failure(&message));
            }
            if let Ok(Some(status)) = table.raw_get::<Option<String>>("ok") {
                return Ok(Value::Text(status.into_bytes()));
            }
            let items = table.sequence_values::<LuaValue>().map(|item| converted(&item.unwrap()));
            Value::List(items.collect::<Result<_, _>>()?)
        }
        _ => Value::Nil,
    })
}

fn failure(message: &str) -> Failure {
    let (trouble, executed) = match message {
        _ if message.contains("WRONGTYPE") => (Trouble::WrongType, Executed::No),
        _ if message.contains("NOPERM") => (Trouble::Misuse, Executed::Maybe),
        _ => (Trouble::Refused, Executed::Maybe),
    };
    Failure { trouble, executed, message: message.to_owned() }
}
