// Package lru is a cache that is bounded in bytes and evicts the least recently used values. Its user computes an
// evicted value again, or reads it again from the store. No result may depend on whether a value is in the cache.
package lru

import (
	"container/list"
	"sync"
)

// Cache keeps values of about max bytes in total. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	max  int
	size func(V) int

	mu    sync.Mutex
	byKey map[K]*list.Element
	order *list.List // of entry, most recently used first
	used  int
}

type entry[K comparable, V any] struct {
	key   K
	value V
	bytes int
}

// New returns an empty cache. size returns the number of bytes that a value takes.
func New[K comparable, V any](max int, size func(V) int) *Cache[K, V] {
	return &Cache[K, V]{max: max, size: size, byKey: map[K]*list.Element{}, order: list.New()}
}

// Get returns the value of a key, and marks it as used.
func (c *Cache[K, V]) Get(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[key]
	if e == nil {
		return v, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true
}

// Put adds a value, or replaces the key's former one, and evicts the least recently used values until all values are
// within the bound. The value that was just added stays, even if it exceeds the bound alone: its caller is about to use
// it.
func (c *Cache[K, V]) Put(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes := c.size(v)
	if e := c.byKey[key]; e != nil {
		known := e.Value.(*entry[K, V])
		c.used -= known.bytes
		known.value, known.bytes = v, bytes
		c.order.MoveToFront(e)
	} else {
		c.byKey[key] = c.order.PushFront(&entry[K, V]{key, v, bytes})
	}
	c.used += bytes
	for c.used > c.max && c.order.Len() > 1 {
		last := c.order.Remove(c.order.Back()).(*entry[K, V])
		delete(c.byKey, last.key)
		c.used -= last.bytes
	}
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey)
}

// Bytes returns the sum of the sizes of all values.
func (c *Cache[K, V]) Bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}
