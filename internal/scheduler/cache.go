package scheduler

import (
	"container/list"
	"sync"
)

// cache keeps what was met last, up to about so many bytes: a hint, read again from the store.
type cache[K comparable, V any] struct {
	max  int
	size func(V) int

	mu    sync.Mutex
	there map[K]*list.Element
	order *list.List // of cached, latest first
	used  int
}

type cached[K comparable, V any] struct {
	key   K
	value V
}

func newCache[K comparable, V any](max int, size func(V) int) *cache[K, V] {
	return &cache[K, V]{max: max, size: size, there: map[K]*list.Element{}, order: list.New()}
}

func (c *cache[K, V]) get(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.there[key]
	if e == nil {
		return v, false
	}
	c.order.MoveToFront(e)
	return e.Value.(cached[K, V]).value, true
}

func (c *cache[K, V]) put(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there[key] != nil {
		return
	}
	c.there[key] = c.order.PushFront(cached[K, V]{key, v})
	c.used += c.size(v)
	for c.used > c.max && c.order.Len() > 1 {
		last := c.order.Remove(c.order.Back()).(cached[K, V])
		delete(c.there, last.key)
		c.used -= c.size(last.value)
	}
}
