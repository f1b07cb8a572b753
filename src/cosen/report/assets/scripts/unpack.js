// What the page shows, and its packed numbers.

const contents = JSON.parse(document.getElementById("contents").textContent);

// Numbers of 16 bits between `low` and `high`, in base64: see cosen/report/packing.py. Bytes are
// put together by hand because a Uint16Array would follow the byte order of the machine.
function unpack(packed) {
  const bytes = atob(packed.data);
  const values = new Float64Array(bytes.length / 2);
  for (let i = 0; i < values.length; i++) {
    const stored = bytes.charCodeAt(2 * i) | (bytes.charCodeAt(2 * i + 1) << 8);
    const value = packed.low + ((packed.high - packed.low) * stored) / 65535;
    values[i] = packed.log ? 10 ** value : value;
  }
  return values;
}

// Square matrices, one for each epoch that is included.
function unpackMatrices(packed) {
  const values = unpack(packed);
  const [epochs, size] = packed.shape;
  return {
    values,
    at: (epoch, row, column) => values[(Math.min(epoch, epochs - 1) * size + row) * size + column],
  };
}
