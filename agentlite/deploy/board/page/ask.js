// What the server knows. Paths are below the token, which stands in the page's own address.

async function answered(response) {
  const body = await response.json();
  if (!response.ok) throw new Error(body.error?.message ?? `the board answers ${response.status}`);
  return body;
}

export async function ask(path, query = {}) {
  const words = new URLSearchParams(query).toString();
  return answered(await fetch(`api/${path}${words ? `?${words}` : ""}`, { cache: "no-store" }));
}

export async function tell(path, body) {
  const headers = { "Content-Type": "application/json" };
  return answered(await fetch(`api/${path}`, { method: "POST", headers, body: JSON.stringify(body) }));
}
