// Loads NAME.wasm, which nnc exported: `const f = await load(bytes)`, then `f(...inputs)` returns the outputs.
// Inputs and outputs are typed arrays, row-major; float16 and bfloat16 are Uint16Arrays of bits, complex numbers pairs.
const INPUTS = [];
const OUTPUTS = [];
const ARENA_BYTES = 0;
const ALIGNMENT = 64;

const TYPES = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array,
  uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array, float16: Uint16Array, bfloat16: Uint16Array,
  float32: Float32Array, float64: Float64Array, complex64: Float32Array, complex128: Float64Array,
};
const MATH = ["exp", "log", "log2", "log10", "sin", "cos", "tan", "pow", "floor", "ceil", "trunc"];

export async function load(bytes) {
  const env = { fmod: (x, y) => x % y, fmodf: (x, y) => x % y };
  for (const name of MATH) env[name] = env[name + "f"] = Math[name];
  const { instance } = await WebAssembly.instantiate(bytes, { env });
  const { memory, __heap_base, NAME, NAME_error } = instance.exports;
  let end = __heap_base.value;
  const room = (size) => {
    const at = Math.ceil(end / ALIGNMENT) * ALIGNMENT;
    end = at + size;
    return at;
  };
  const inputs = INPUTS.map((x) => room(x.bytes));
  const outputs = OUTPUTS.map((x) => room(x.bytes));
  const lists = room(4 * (inputs.length + outputs.length)), arena = room(ARENA_BYTES);
  const missing = end - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / 65536));
  const view = (x, at) => new TYPES[x.dtype](memory.buffer, at, x.bytes / TYPES[x.dtype].BYTES_PER_ELEMENT);
  new Uint32Array(memory.buffer, lists).set([...inputs, ...outputs]);
  return (...given) => {
    INPUTS.forEach((x, i) => view(x, inputs[i]).set(given[i]));
    const error = NAME(lists, lists + 4 * inputs.length, arena);
    if (error) {
      const text = new Uint8Array(memory.buffer, NAME_error(error));
      throw new Error(new TextDecoder().decode(text.slice(0, text.indexOf(0))));
    }
    return OUTPUTS.map((x, i) => view(x, outputs[i]).slice());
  };
}
