// Runs named steps and prints one line for each. Usage of a client file: FILE BOOTSTRAP RUN [ONLY-REGEX].
import { isDeepStrictEqual } from 'node:util'
const [, , boot, run, only] = process.argv
export const BOOT = boot
export const name = n => `nd-${run}-${n}`
const wanted = new RegExp(only || '.')
export const sleep = ms => new Promise(r => setTimeout(r, ms))
export class Skip extends Error {}

export async function step (label, body, limit = 90) {
  if (!wanted.test(label)) return
  let timer
  const late = new Promise((_, no) => { timer = setTimeout(() => no(new Error(`no result within ${limit} s`)), limit * 1000) })
  try {
    await Promise.race([body(), late])
    console.log(`PASS ${label}`)
  } catch (e) {
    if (e instanceof Skip) console.log(`SKIP ${label}  # ${e.message}`)
    else {
      const at = String(e?.stack).split('\n').find(l => l.includes('/node/'))?.match(/(\w+\.mjs:\d+)/g)
      console.log(`FAIL ${label}  # ${text(e).replace(/\s+/g, ' ').slice(0, 260)} (${at})`)
      console.error(e)
    }
  } finally { clearTimeout(timer) }
}

export const text = e => [e?.name, e?.message, e?.type, e?.code, ...(e?.errors ?? []).map(text), e?.cause ? text(e.cause) : ''].filter(Boolean).join(' ')

export function eq (got, want, what = '') {
  const s = v => JSON.stringify(v, (_, x) => typeof x === 'bigint' ? `${x}n` : x)?.slice(0, 200)
  if (!isDeepStrictEqual(got, want)) throw new Error(`${what}: got ${s(got)}, want ${s(want)}`)
}

export async function until (seconds, what, probe) {
  const end = Date.now() + seconds * 1000
  let last
  for (;;) {
    try { last = await probe(); if (last) return last } catch (e) { last = text(e) }
    if (Date.now() > end) throw new Error(`never ${what}; last ${last}`)
    await sleep(100)
  }
}

export async function fails (promise, ...kinds) {
  try { await promise } catch (e) {
    if (!kinds.some(k => text(e).includes(k))) throw new Error(`failed with ${text(e)}, want ${kinds}`)
    return e
  }
  throw new Error(`no failure, want ${kinds}`)
}

export const vals = (lo, hi) => Array.from({ length: hi - lo }, (_, i) => `v${lo + i}`)
process.on('unhandledRejection', e => console.error('unhandled', e))
process.on('uncaughtException', e => console.error('uncaught', e))
