// A device for tests: torch's PrivateUse1 backend on host memory, with the behaviour of an accelerator.
//
// - Memory: addresses of tensors are in a reserved range without access rights. The pages behind them are mapped a
//   second time; only the functions below know that address. A read or write by the host ends with SIGSEGV.
// - Execution: every stream has a queue and a thread. An operator infers the shapes of its results with meta tensors,
//   allocates them, and enqueues the CPU's operator. Operators whose shapes depend on values wait for the stream.
// - Time: every stream has a clock. Work starts at the end of the previous work, or when it was submitted, and lasts
//   as long as configured (or as it really takes, if longer). Events read this clock. A wait takes real time too.
// - Memory is freed in the order of the stream that allocated it, as in torch's caching allocators.
// - Graphs: captured work is kept with its memory, and submitted by one launch.
// - A process that used the device before a fork cannot use it in the child.
//
// The functions `standin_*` at the end configure the device.

#include <sys/mman.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/GraphImplInterface.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::IValue;
using c10::Stream;

constexpr DeviceType TYPE = DeviceType::PrivateUse1;
constexpr int MAX_DEVICES = 8;
constexpr size_t ARENA_BYTES = size_t(1) << 36;
constexpr size_t ALIGNMENT = 512;
constexpr size_t POOL_STREAMS = 8;

// ---- configuration -------------------------------------------------------------------------------------------------

int64_t read_variable(const char* name, int64_t otherwise) {
  const char* text = getenv(name);
  return text && *text ? atoll(text) : otherwise;
}

struct Settings {
  std::atomic<int64_t> devices{read_variable("STANDIN_DEVICES", 2)};
  std::atomic<int64_t> operator_ns{read_variable("STANDIN_OPERATOR_NS", 0)};
  std::atomic<int64_t> launch_ns{read_variable("STANDIN_LAUNCH_NS", 0)};
  std::atomic<int64_t> copy_bytes_per_second{read_variable("STANDIN_COPY_BYTES_PER_SECOND", 0)};
  std::atomic<int64_t> memory_bytes{read_variable("STANDIN_MEMORY_BYTES", int64_t(1) << 30)};
  std::atomic<int64_t> lacks_float64{read_variable("STANDIN_LACKS_FLOAT64", 0)};
  std::atomic<int64_t> event_rate_percent{read_variable("STANDIN_EVENT_RATE_PERCENT", 100)};
  std::atomic<int64_t> serial_copies{read_variable("STANDIN_SERIAL_COPIES", 0)};
  std::atomic<int64_t> wrong_results{read_variable("STANDIN_WRONG_RESULTS", 0)};
  std::atomic<int64_t> lost_device{read_variable("STANDIN_LOST_DEVICE", -1)};
  std::atomic<int64_t> lost_after_launches{read_variable("STANDIN_LOST_AFTER_LAUNCHES", 0)};
};

Settings& settings() {
  static auto* instance = new Settings();
  return *instance;
}

int64_t read_clock() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

void sleep_until(int64_t ns) {
  timespec t{time_t(ns / 1000000000), long(ns % 1000000000)};
  while (read_clock() < ns) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
}

// Wait for a launch. A thread that sleeps is scheduled earlier on a busy machine than one that computes.
void spend(int64_t ns) {
  int64_t end = read_clock() + ns;
  if (ns >= 1000000) sleep_until(end);
  while (read_clock() < end) {}
}

// ---- queues and events ---------------------------------------------------------------------------------------------

struct Queue;

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t submitted = 0, completed = 0;
  int64_t time_ns = 0;
  DeviceIndex device = 0;

  void wait(uint64_t version) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return completed >= version; });
  }
};
using EventPtr = std::shared_ptr<EventState>;

struct Task {
  std::function<void(Queue&)> run;
  int64_t duration_ns = 0;   // at least
  int64_t submitted_ns = 0;
  bool work = false;         // takes time on the stream's clock
};

struct Queue {
  DeviceIndex device;
  int64_t id;
  std::mutex mutex;
  std::condition_variable has_work, progressed;
  std::deque<Task> tasks;
  uint64_t submitted = 0, completed = 0;
  int64_t clock_ns = 0;
  std::string error;

  Queue(DeviceIndex device, int64_t id) : device(device), id(id) {
    std::thread([this] { serve(); }).detach();
  }

  void serve();

  void submit(Task task) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      task.submitted_ns = read_clock();
      tasks.push_back(std::move(task));
      ++submitted;
    }
    has_work.notify_one();
  }

  void wait_all() {
    std::unique_lock<std::mutex> lock(mutex);
    uint64_t last = submitted;
    progressed.wait(lock, [&] { return completed >= last; });
  }

  bool idle() {
    std::lock_guard<std::mutex> lock(mutex);
    return completed == submitted;
  }

  void raise_error() {
    std::string text;
    {
      std::lock_guard<std::mutex> lock(mutex);
      text.swap(error);
    }
    TORCH_CHECK(text.empty(), "asynchronous error on standin:", int(device), ": ", text);
  }
};

std::mutex& serial_mutex() {
  static auto* instance = new std::mutex();
  return *instance;
}

void Queue::serve() {
  c10::ParallelGuard serial(true);  // operators of this thread start no other threads
  while (true) {
    Task task;
    {
      std::unique_lock<std::mutex> lock(mutex);
      has_work.wait(lock, [&] { return !tasks.empty(); });
      task = std::move(tasks.front());
      tasks.pop_front();
    }
    clock_ns = std::max(clock_ns, task.submitted_ns);
    std::unique_lock<std::mutex> exclusive(serial_mutex(), std::defer_lock);
    if (task.work && settings().serial_copies) exclusive.lock();
    if (exclusive.owns_lock()) clock_ns = std::max(clock_ns, read_clock());
    // Memory is read and written at the end: results that are used too early, and inputs that are changed too early,
    // are both seen.
    if (task.work) sleep_until(clock_ns + task.duration_ns);
    int64_t before = read_clock();
    try {
      task.run(*this);
    } catch (const std::exception& failure) {
      std::lock_guard<std::mutex> lock(mutex);
      if (error.empty()) error = failure.what();
    }
    if (task.work) {
      int64_t after = read_clock();
      clock_ns = task.duration_ns ? clock_ns + std::max(task.duration_ns, after - before) : std::max(clock_ns, after);
    }
    task = Task();  // releases what the task holds before it counts as done
    {
      std::lock_guard<std::mutex> lock(mutex);
      ++completed;
    }
    progressed.notify_all();
  }
}

uint64_t record_event(const EventPtr& event, Queue& queue) {
  uint64_t version;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    version = ++event->submitted;
    event->device = queue.device;
  }
  queue.submit({[event, version](Queue& q) {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->completed = std::max(event->completed, version);
    event->time_ns = q.clock_ns;
    event->changed.notify_all();
  }});
  return version;
}

void wait_event(const EventPtr& event, uint64_t version, Queue& queue) {
  queue.submit({[event, version](Queue& q) {
    event->wait(version);
    std::lock_guard<std::mutex> lock(event->mutex);
    q.clock_ns = std::max(q.clock_ns, event->time_ns);
  }});
}

// ---- devices -------------------------------------------------------------------------------------------------------

struct Block {
  DeviceIndex device;
  size_t offset, size;
  int64_t stream;
  std::set<int64_t> other_streams;
};

struct DeviceState {
  DeviceIndex index;
  char* visible = nullptr;  // addresses of tensors: no access
  char* backing = nullptr;  // the same bytes, for the queues
  std::mutex mutex;
  std::vector<std::unique_ptr<Queue>> queues;
  size_t next_pool_stream = 0;
  std::map<size_t, size_t> free_ranges;  // offset -> size, outside of all blocks
  std::multimap<std::pair<int64_t, size_t>, Block*> cached;  // (stream, size) -> free block
  std::vector<std::pair<Block*, std::vector<EventPtr>>> pending;  // freed, but still used by other streams
  c10::CachingDeviceAllocator::DeviceStats stats;

  explicit DeviceState(DeviceIndex index) : index(index) {
    int file = memfd_create("standin", 0);
    TORCH_CHECK(file >= 0 && ftruncate(file, ARENA_BYTES) == 0, "standin: no memory");
    auto map = [&](int rights, int flags, int fd) {
      void* address = mmap(nullptr, ARENA_BYTES, rights, flags | MAP_NORESERVE, fd, 0);
      TORCH_CHECK(address != MAP_FAILED, "standin: cannot map memory");
      return static_cast<char*>(address);
    };
    visible = map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    backing = map(PROT_READ | PROT_WRITE, MAP_SHARED, file);
    close(file);
    free_ranges[0] = ARENA_BYTES;
    queues.push_back(std::make_unique<Queue>(index, 0));
  }

  Queue& queue(int64_t id) {
    std::lock_guard<std::mutex> lock(mutex);
    return *queues.at(id);
  }

  int64_t add_queue() {
    std::lock_guard<std::mutex> lock(mutex);
    queues.push_back(std::make_unique<Queue>(index, int64_t(queues.size())));
    return queues.back()->id;
  }

  std::vector<Queue*> list_queues() {
    std::lock_guard<std::mutex> lock(mutex);
    std::vector<Queue*> all;
    for (auto& queue : queues) all.push_back(queue.get());
    return all;
  }

  void synchronize() {
    for (Queue* queue : list_queues()) queue->wait_all();
    for (Queue* queue : list_queues()) queue->raise_error();
  }
};

std::atomic<int64_t> launches{0};
std::atomic<bool> initialised{false}, forked_after_use{false};
std::array<std::atomic<DeviceState*>, MAX_DEVICES> states{};
std::mutex& states_mutex() {
  static auto* instance = new std::mutex();
  return *instance;
}

DeviceIndex count_devices() {
  return DeviceIndex(std::min<int64_t>(settings().devices, MAX_DEVICES));
}

thread_local DeviceIndex current_device = 0;
thread_local std::array<int64_t, MAX_DEVICES> current_streams{};

void check_fork() {
  TORCH_CHECK(
      !forked_after_use,
      "Cannot re-initialize standin in forked subprocess: it was initialised before the fork");
}

DeviceState& get_state(DeviceIndex index) {
  check_fork();
  TORCH_CHECK(index >= 0 && index < count_devices(), "standin: invalid device ordinal ", int(index));
  if (settings().lost_device == index && launches >= settings().lost_after_launches)
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 1, "standin: device lost");
  DeviceState* state = states[index];
  if (state) return *state;
  std::lock_guard<std::mutex> lock(states_mutex());
  if (!states[index]) {
    if (!initialised.exchange(true)) {
      pthread_atfork(nullptr, nullptr, [] { forked_after_use = initialised.load(); });
      atexit([] {
        if (forked_after_use) return;
        for (auto& each : states)
          if (each) for (Queue* queue : each.load()->list_queues()) queue->wait_all();
      });
    }
    states[index] = new DeviceState(index);
  }
  return *states[index];
}

Queue& get_queue(DeviceIndex index) { return get_state(index).queue(current_streams[index]); }

Queue& get_queue(const Stream& stream) { return get_state(stream.device_index()).queue(stream.id()); }

DeviceIndex resolve(Device device) { return device.has_index() ? device.index() : current_device; }

Stream make_stream(DeviceIndex index, int64_t id) { return Stream(Stream::UNSAFE, Device(TYPE, index), id); }

// The work of a graph while it is captured by this thread, and the memory that its tensors were freed from.
struct Capture {
  std::vector<std::pair<int64_t, std::function<void(Queue&)>>> work;
  std::vector<Block*> freed;
};
thread_local Capture* capturing = nullptr;

// Submit work that lasts at least `duration_ns`, after the time that a launch takes the host.
void launch(Queue& queue, int64_t duration_ns, std::function<void(Queue&)> run) {
  get_state(queue.device);
  if (capturing) {
    capturing->work.emplace_back(duration_ns, std::move(run));
    return;
  }
  ++launches;
  if (int64_t ns = settings().launch_ns) spend(ns);
  queue.submit({std::move(run), duration_ns, 0, true});
}

// ---- memory --------------------------------------------------------------------------------------------------------

constexpr size_t ALL = 0;

struct StandinAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override { return allocate_on(current_device, bytes); }

  c10::DataPtr allocate_on(DeviceIndex index, size_t bytes) {
    DeviceState& device = get_state(index);
    if (bytes == 0) return {nullptr, nullptr, &ignore, Device(TYPE, index)};
    size_t size = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    std::unique_lock<std::mutex> lock(device.mutex);
    collect_pending(device);
    Block* block = take_cached(device, size);
    if (!block) block = reserve(device, size);
    if (!block) {
      lock.unlock();
      device.synchronize();
      lock.lock();
      release_cached(device);
      block = reserve(device, size);
    }
    if (!block) {
      device.stats.num_ooms++;
      TORCH_CHECK_WITH(
          OutOfMemoryError, false, "standin:", int(index), " out of memory. Tried to allocate ", size, " bytes; ",
          device.stats.reserved_bytes[ALL].current, " of ", settings().memory_bytes.load(), " bytes are in use");
    }
    device.stats.allocation[ALL].increase(1);
    device.stats.allocated_bytes[ALL].increase(block->size);
    device.stats.active_bytes[ALL].increase(block->size);
    device.stats.requested_bytes[ALL].increase(bytes);
    return {device.visible + block->offset, block, &release, Device(TYPE, index)};
  }

  static Block* take_cached(DeviceState& device, size_t size) {
    auto place = device.cached.lower_bound({current_streams[device.index], size});
    if (place == device.cached.end() || place->first.first != current_streams[device.index] ||
        place->first.second > size + size / 4)
      return nullptr;
    Block* block = place->second;
    device.cached.erase(place);
    return block;
  }

  static Block* reserve(DeviceState& device, size_t size) {
    if (device.stats.reserved_bytes[ALL].current + int64_t(size) > settings().memory_bytes) return nullptr;
    for (auto& [offset, length] : device.free_ranges) {
      if (length < size) continue;
      auto* block = new Block{device.index, offset, size, current_streams[device.index], {}};
      size_t rest = length - size, next = offset + size;
      device.free_ranges.erase(offset);
      if (rest) device.free_ranges[next] = rest;
      device.stats.reserved_bytes[ALL].increase(size);
      device.stats.segment[ALL].increase(1);
      return block;
    }
    return nullptr;
  }

  // Return all free blocks to the device. The caller has waited for all streams.
  static void release_cached(DeviceState& device) {
    collect_pending(device);
    for (auto& [key, block] : device.cached) {
      device.free_ranges[block->offset] = block->size;
      device.stats.reserved_bytes[ALL].decrease(block->size);
      device.stats.segment[ALL].decrease(1);
      delete block;
    }
    device.cached.clear();
    for (auto place = device.free_ranges.begin(); place != device.free_ranges.end();) {
      auto next = std::next(place);
      if (next != device.free_ranges.end() && place->first + place->second == next->first) {
        place->second += next->second;
        device.free_ranges.erase(next);
      } else {
        place = next;
      }
    }
  }

  static void collect_pending(DeviceState& device) {
    auto& pending = device.pending;
    for (size_t n = 0; n < pending.size();) {
      bool done = true;
      for (auto& event : pending[n].second) {
        std::lock_guard<std::mutex> lock(event->mutex);
        done = done && event->completed >= 1;
      }
      if (!done) {
        ++n;
        continue;
      }
      cache(device, pending[n].first);
      pending.erase(pending.begin() + n);
    }
  }

  static void cache(DeviceState& device, Block* block) {
    block->other_streams.clear();
    device.stats.active_bytes[ALL].decrease(block->size);
    device.cached.insert({{block->stream, block->size}, block});
  }

  static void ignore(void*) {}

  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    if (!block || forked_after_use) return;
    DeviceState& device = *states[block->device];
    std::vector<EventPtr> events;
    for (int64_t stream : block->other_streams) {
      events.push_back(std::make_shared<EventState>());
      record_event(events.back(), device.queue(stream));
    }
    std::lock_guard<std::mutex> lock(device.mutex);
    if (capturing) {  // replays write to this memory: it belongs to the graph
      capturing->freed.push_back(block);
      return;
    }
    device.stats.allocation[ALL].decrease(1);
    device.stats.allocated_bytes[ALL].decrease(block->size);
    if (events.empty())
      cache(device, block);
    else
      device.pending.push_back({block, std::move(events)});
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "standin: no direct copies"); }
  bool initialized() override { return initialised && !forked_after_use; }
  void recordStream(const c10::DataPtr& data, Stream stream) override {
    auto* block = static_cast<Block*>(data.get_context());
    if (!block || block->stream == stream.id()) return;
    std::lock_guard<std::mutex> lock(states[block->device].load()->mutex);
    block->other_streams.insert(stream.id());
  }
  void emptyCache(c10::MempoolId_t) override {
    for (DeviceIndex index = 0; index < count_devices(); ++index) {
      if (!states[index]) continue;
      DeviceState& device = get_state(index);
      device.synchronize();
      std::lock_guard<std::mutex> lock(device.mutex);
      release_cached(device);
    }
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex index) override {
    DeviceState& device = get_state(index);
    std::lock_guard<std::mutex> lock(device.mutex);
    return device.stats;
  }
  void resetAccumulatedStats(DeviceIndex index) override {
    for_each_stat(index, [](auto& stat) { stat.reset_accumulated(); });
  }
  void resetPeakStats(DeviceIndex index) override {
    for_each_stat(index, [](auto& stat) { stat.reset_peak(); });
  }
  void for_each_stat(DeviceIndex index, const std::function<void(c10::CachingAllocator::Stat&)>& change) {
    DeviceState& device = get_state(index);
    std::lock_guard<std::mutex> lock(device.mutex);
    auto& s = device.stats;
    for (auto* stat : {&s.allocation, &s.allocated_bytes, &s.active_bytes, &s.reserved_bytes, &s.segment, &s.requested_bytes})
      change((*stat)[ALL]);
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex index) override {
    size_t total = settings().memory_bytes, used = getDeviceStats(index).reserved_bytes[ALL].current;
    return {total - std::min(total, used), total};
  }
};

StandinAllocator& allocator() {
  static auto* instance = new StandinAllocator();
  return *instance;
}

struct PinnedAllocator final : at::HostAllocator {
  std::mutex mutex;
  std::map<const char*, size_t> blocks;

  c10::DataPtr allocate(size_t bytes) override;
  static void release(void* address);
  bool contains(const void* address) {
    std::lock_guard<std::mutex> lock(mutex);
    auto place = blocks.upper_bound(static_cast<const char*>(address));
    if (place == blocks.begin()) return false;
    --place;
    return static_cast<const char*>(address) < place->first + std::max<size_t>(place->second, 1);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool record_event(void*, void*, Stream) override { return true; }  // queued copies hold their memory
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

PinnedAllocator& pinned() {
  static auto* instance = new PinnedAllocator();
  return *instance;
}

c10::DataPtr PinnedAllocator::allocate(size_t bytes) {
  void* address = nullptr;
  TORCH_CHECK_WITH(OutOfMemoryError, posix_memalign(&address, 4096, std::max<size_t>(bytes, 1)) == 0, "no pinned memory");
  std::lock_guard<std::mutex> lock(mutex);
  blocks[static_cast<char*>(address)] = bytes;
  return {address, address, &release, Device(DeviceType::CPU)};
}

void PinnedAllocator::release(void* address) {
  {
    std::lock_guard<std::mutex> lock(pinned().mutex);
    pinned().blocks.erase(static_cast<char*>(address));
  }
  free(address);
}

// ---- guard, hooks, random numbers ----------------------------------------------------------------------------------

EventPtr& get_event(void* event) { return *static_cast<EventPtr*>(event); }

struct StandinGuard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return TYPE; }
  Device exchangeDevice(Device device) const override {
    Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  Device getDevice() const override { return Device(TYPE, current_device); }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() < count_devices(), "standin: invalid device ordinal ", int(device.index()));
    if (device.index() >= 0) current_device = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) current_device = device.index();
  }
  Stream getStream(Device device) const override {
    return make_stream(resolve(device), current_streams[resolve(device)]);
  }
  Stream getDefaultStream(Device device) const override { return make_stream(resolve(device), 0); }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    DeviceState& state = get_state(resolve(device));
    size_t number = state.next_pool_stream++;
    while (state.list_queues().size() <= POOL_STREAMS) state.add_queue();
    return make_stream(state.index, 1 + int64_t(number % POOL_STREAMS));
  }
  Stream getNewStream(Device device, int) const override {
    DeviceState& state = get_state(resolve(device));
    return make_stream(state.index, state.add_queue());
  }
  Stream exchangeStream(Stream stream) const override {
    Stream previous = getStream(stream.device());
    current_streams[stream.device_index()] = stream.id();
    return previous;
  }
  void* getStreamNativeHandle(const Stream stream) const override { return &get_queue(stream); }
  bool queryStream(const Stream& stream) const override { return get_queue(stream).idle(); }
  void synchronizeStream(const Stream& stream) const override {
    Queue& queue = get_queue(stream);
    queue.wait_all();
    queue.raise_error();
  }
  void synchronizeDevice(const DeviceIndex index) const override {
    check_fork();
    DeviceIndex actual = index < 0 ? current_device : index;
    if (states[actual]) get_state(actual).synchronize();
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<EventPtr*>(event); }
  void record(void** event, const Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new EventPtr(std::make_shared<EventState>());
    record_event(get_event(*event), get_queue(stream));
  }
  void block(void* event, const Stream& stream) const override {
    if (!event) return;
    EventPtr state = get_event(event);
    uint64_t version;
    {
      std::lock_guard<std::mutex> lock(state->mutex);
      version = state->submitted;
    }
    wait_event(state, version, get_queue(stream));
  }
  bool queryEvent(void* event) const override {
    if (!event) return true;
    std::lock_guard<std::mutex> lock(get_event(event)->mutex);
    return get_event(event)->completed == get_event(event)->submitted;
  }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    uint64_t version;
    {
      std::lock_guard<std::mutex> lock(get_event(event)->mutex);
      version = get_event(event)->submitted;
    }
    get_event(event)->wait(version);
  }
  double elapsedTime(void* first, void* second, const DeviceIndex) const override {
    TORCH_CHECK(first && second, "both events must be recorded before their times are compared");
    TORCH_CHECK(queryEvent(first) && queryEvent(second), "both events must be completed before their times are compared");
    double rate = double(settings().event_rate_percent) / 100;
    return double(get_event(second)->time_ns - get_event(first)->time_ns) / 1e6 * rate;
  }
  DeviceIndex deviceCount() const noexcept override { return forked_after_use ? 0 : count_devices(); }
  c10::DeviceCapability getDeviceCapability(Device) const override {
    c10::DeviceCapability capability;
    if (settings().lacks_float64) capability.capability_data.supported_scalar_types.has_Double = 0;
    return capability;
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    allocator().recordStream(data, stream);
  }
};

struct StandinGenerator final : at::CPUGeneratorImpl {
  explicit StandinGenerator(DeviceIndex index) {
    device_ = Device(TYPE, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

const at::Generator& get_default_generator(DeviceIndex index) {
  static auto* generators = [] {
    auto* all = new std::vector<at::Generator>();
    for (DeviceIndex n = 0; n < MAX_DEVICES; ++n) all->push_back(at::make_generator<StandinGenerator>(n));
    return all;
  }();
  return generators->at(index < 0 ? current_device : index);
}

struct StandinHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return count_devices() > 0; }
  bool hasPrimaryContext(DeviceIndex index) const override {
    return index >= 0 && index < MAX_DEVICES && states[index] != nullptr && !forked_after_use;
  }
  DeviceIndex deviceCount() const override { return count_devices(); }
  void setCurrentDevice(DeviceIndex index) const override { StandinGuard().setDevice(Device(TYPE, index)); }
  DeviceIndex getCurrentDevice() const override { return current_device; }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    DeviceIndex previous = current_device;
    setCurrentDevice(index);
    return previous;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return exchangeDevice(index); }
  const at::Generator& getDefaultGenerator(DeviceIndex index) const override { return get_default_generator(index); }
  at::Generator getNewGenerator(DeviceIndex index) const override {
    return at::make_generator<StandinGenerator>(index < 0 ? current_device : index);
  }
  bool isPinnedPtr(const void* data) const override { return pinned().contains(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned(); }
  Device getDeviceFromPtr(void* data) const override {
    for (auto& state : states) {
      DeviceState* device = state;
      if (device && data >= device->visible && data < device->visible + ARENA_BYTES) return Device(TYPE, device->index);
    }
    TORCH_CHECK(false, "standin: not an address of a device");
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override;
};

// ---- views for the queues ------------------------------------------------------------------------------------------

bool is_ours(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == TYPE; }

// Python numbers are tensors with a flag: they do not take part in the choice of the result's dtype.
void keep_wrapped_number(const Tensor& from, const Tensor& to) {
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

// The bytes of a tensor as a CPU tensor, for use inside a queue. It does not keep the memory.
Tensor view_in_queue(const Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == c10::kStrided, "standin: only strided tensors are supported");
  auto options = tensor.options().device(c10::kCPU).requires_grad(false);
  char* address = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr()));
  Tensor view;
  if (address == nullptr || tensor.numel() == 0) {
    view = at::empty_strided(tensor.sizes(), tensor.strides(), options);
  } else {
    DeviceState& device = get_state(tensor.device().index());
    view = at::from_blob(device.backing + (address - device.visible), tensor.sizes(), tensor.strides(), options);
  }
  keep_wrapped_number(tensor, view);
  return view;
}

// A host tensor that keeps its memory, but no Python object.
Tensor hold_host_memory(const Tensor& tensor) {
  if (tensor.numel() == 0) return tensor;
  c10::Storage storage = tensor.storage();
  return at::from_blob(
      const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(), [storage](void*) {}, tensor.options().requires_grad(false));
}

void check_dtype(c10::ScalarType dtype) {
  TORCH_CHECK_TYPE(
      !(settings().lacks_float64 && dtype == c10::kDouble),
      "standin: the device does not support float64");
}

Tensor empty_strided_on_device(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout>, std::optional<Device> device, std::optional<bool>) {
  DeviceIndex index = device ? resolve(*device) : current_device;
  c10::ScalarType type = c10::dtype_or_default(dtype);
  check_dtype(type);
  DeviceIndex previous = current_device;
  StandinGuard guard;
  guard.setDevice(Device(TYPE, index));
  try {
    Tensor made = at::detail::empty_strided_generic(
        sizes, strides, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
    guard.uncheckedSetDevice(Device(TYPE, previous));
    return made;
  } catch (...) {
    guard.uncheckedSetDevice(Device(TYPE, previous));
    throw;
  }
}

Tensor make_empty(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype, DeviceIndex index) {
  return empty_strided_on_device(sizes, strides, dtype, std::nullopt, Device(TYPE, index), std::nullopt);
}

Tensor empty_on_device(
    c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<Device> device, std::optional<bool> pin, std::optional<c10::MemoryFormat> format) {
  Tensor shape = at::empty(sizes, c10::TensorOptions(c10::kMeta).dtype(c10::dtype_or_default(dtype)), format);
  return empty_strided_on_device(shape.sizes(), shape.strides(), dtype, layout, device, pin);
}

void StandinHooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const {
  if (bytes <= storage.nbytes()) return;
  DeviceState& device = get_state(storage.device().index());
  c10::DataPtr fresh = allocator().allocate_on(device.index, bytes);
  size_t old = storage.nbytes();
  if (old) {
    char* from = device.backing + (static_cast<const char*>(storage.data()) - device.visible);
    char* to = device.backing + (static_cast<char*>(fresh.get()) - device.visible);
    launch(get_queue(device.index), 0, [=](Queue&) { memcpy(to, from, old); });
  }
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

const Tensor& resize_on_device(const Tensor& self, c10::IntArrayRef sizes, std::optional<c10::MemoryFormat> format) {
  Tensor shape = at::empty(sizes, c10::TensorOptions(c10::kMeta).dtype(self.scalar_type()), format);
  size_t bytes = at::detail::computeStorageNbytes(
      shape.sizes(), shape.strides(), self.dtype().itemsize(), self.storage_offset());
  at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), bytes);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes(), shape.strides());
  return self;
}

// ---- operators -----------------------------------------------------------------------------------------------------

using Convert = std::function<Tensor(const Tensor&)>;

IValue convert_value(const IValue& value, const Convert& convert, DeviceType device) {
  if (value.isTensor()) return convert(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(convert(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorList())
      list.push_back(tensor && tensor->defined() ? std::optional<Tensor>(convert(*tensor)) : std::nullopt);
    return list;
  }
  if (value.isDevice() && value.toDevice().type() == TYPE) return Device(device);
  return value;
}

bool is_generator(const c10::Argument& argument) {
  return argument.type()->str().find("Generator") != std::string::npos;
}

Tensor make_meta(const Tensor& tensor) {
  Tensor meta = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta).requires_grad(false));
  keep_wrapped_number(tensor, meta);
  return meta;
}

DeviceIndex find_device(const std::vector<IValue>& arguments) {
  DeviceIndex index = -1;
  Convert look = [&](const Tensor& tensor) {
    if (is_ours(tensor)) {
      TORCH_CHECK(
          index < 0 || index == tensor.device().index(),
          "Expected all tensors to be on the same device, but found at least two devices, standin:", int(index),
          " and standin:", int(tensor.device().index()));
      index = tensor.device().index();
    }
    return tensor;
  };
  for (const IValue& value : arguments) {
    convert_value(value, look, TYPE);
    if (index < 0 && value.isDevice() && value.toDevice().type() == TYPE) index = resolve(value.toDevice());
  }
  return index < 0 ? current_device : index;
}

std::vector<Tensor> list_tensors(const IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  return value.isTensorList() ? value.toTensorVector() : std::vector<Tensor>{};
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    std::string type = result.type()->str();
    if (type != "Tensor" && type != "Tensor[]" && type != "List[Tensor]") return false;
  }
  return true;
}

// The argument that a result aliases; -1 for a new result.
int find_alias(const c10::FunctionSchema& schema, size_t number) {
  const auto* wanted = schema.returns()[number].alias_info();
  if (!wanted) return -1;
  TORCH_CHECK(wanted->isWrite(), "standin: the view ", schema.name(), " is not implemented");
  for (size_t n = 0; n < schema.arguments().size(); ++n) {
    const auto* info = schema.arguments()[n].alias_info();
    if (info && info->isWrite() && info->beforeSets() == wanted->beforeSets()) return int(n);
  }
  TORCH_CHECK(false, "standin: no argument for a result of ", schema.name());
}

void call_on_cpu(const c10::OperatorHandle& op, std::vector<IValue>& values) {
  at::AutoDispatchBelowADInplaceOrView guard;
  op.callBoxed(&values);
}

void copy_results(const std::vector<IValue>& results, const std::vector<std::vector<Tensor>>& targets) {
  at::AutoDispatchBelowADInplaceOrView guard;
  for (size_t n = 0; n < targets.size(); ++n) {
    std::vector<Tensor> made = list_tensors(results.at(n));
    for (size_t k = 0; k < targets[n].size(); ++k) {
      if (!targets[n][k].defined()) continue;
      if (made.at(k).numel() == 0 && targets[n][k].numel() && targets[n][k].is_floating_point()) {
        targets[n][k].fill_(NAN);  // statistics of native_batch_norm in evaluation: the CPU does not compute them
        continue;
      }
      TORCH_CHECK(targets[n][k].sizes() == made.at(k).sizes(), "standin: the shape of a result was not as expected");
      TORCH_CHECK(targets[n][k].dtype() == made[k].dtype(), "standin: the dtype of a result was not as expected");
      targets[n][k].copy_(made[k]);
      if (settings().wrong_results && targets[n][k].is_floating_point()) targets[n][k].mul_(1.01);
    }
  }
}

// Arguments for the CPU's operator. `copies_written`: arguments that are written are copies, which can be resized.
std::vector<IValue> make_cpu_arguments(
    const c10::FunctionSchema& schema, const std::vector<IValue>& arguments, DeviceIndex index, bool copies_written) {
  std::vector<IValue> values;
  for (size_t n = 0; n < arguments.size(); ++n) {
    const auto& argument = schema.arguments()[n];
    if (is_generator(argument)) {
      at::Generator generator = arguments[n].isNone() ? get_default_generator(index) : arguments[n].toGenerator();
      uint64_t seed;
      {
        std::lock_guard<std::mutex> lock(generator.mutex());
        seed = generator.device().type() == TYPE ? generator.get<StandinGenerator>()->random64()
                                                 : generator.get<at::CPUGeneratorImpl>()->random64();
      }
      values.emplace_back(at::detail::createCPUGenerator(seed));
      continue;
    }
    bool written = argument.alias_info() && argument.alias_info()->isWrite();
    Convert convert = [&](const Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      if (!is_ours(tensor)) {
        Tensor copy = tensor.clone();
        keep_wrapped_number(tensor, copy);
        return copy;
      }
      Tensor view = view_in_queue(tensor);
      return written && copies_written ? view.clone() : view;
    };
    values.push_back(convert_value(arguments[n], convert, DeviceType::CPU));
  }
  return values;
}

void run_and_wait(Queue& queue, int64_t duration_ns, const std::function<void(Queue&)>& body) {
  TORCH_CHECK(!capturing, "standin: a graph cannot capture work that the host waits for");
  std::exception_ptr failure;
  launch(queue, duration_ns, [&](Queue& q) {
    try {
      body(q);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  queue.wait_all();
  if (failure) std::rethrow_exception(failure);
  queue.raise_error();
}

// Run an operator whose results are not known before it ran: wait for it.
std::vector<IValue> run_waiting(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, DeviceIndex index) {
  const auto& schema = op.schema();
  Queue& queue = get_queue(index);
  queue.wait_all();
  std::vector<IValue> values = make_cpu_arguments(schema, arguments, index, true);
  std::vector<IValue> written = values;
  run_and_wait(queue, settings().operator_ns, [&](Queue&) { call_on_cpu(op, values); });
  for (size_t n = 0; n < arguments.size(); ++n) {  // copy back what was written
    const auto* info = schema.arguments()[n].alias_info();
    if (!info || !info->isWrite()) continue;
    std::vector<Tensor> ours = list_tensors(arguments[n]), theirs = list_tensors(written[n]);
    for (size_t k = 0; k < ours.size(); ++k) {
      if (!is_ours(ours[k])) continue;
      if (ours[k].sizes() != theirs[k].sizes()) resize_on_device(ours[k], theirs[k].sizes(), std::nullopt);
      Tensor target = view_in_queue(ours[k]);
      run_and_wait(queue, 0, [&](Queue&) { target.copy_(theirs[k]); });
    }
  }
  std::vector<IValue> results;
  for (size_t n = 0; n < schema.returns().size(); ++n) {
    IValue& value = values.at(n);
    if (!value.isTensor() && !value.isTensorList()) {
      results.push_back(value);
      continue;
    }
    int alias = find_alias(schema, n);
    if (alias >= 0) {
      results.push_back(arguments[alias]);
      continue;
    }
    results.push_back(convert_value(value, [&](const Tensor& result) {
      if (!result.defined()) return result;
      Tensor made = make_empty(result.sizes(), result.strides(), result.scalar_type(), index);
      Tensor target = view_in_queue(made);
      run_and_wait(queue, 0, [&](Queue&) { copy_results({result}, {{target}}); });
      return made;
    }, TYPE));
  }
  return results;
}

// Shape inference follows other devices: there, statistics of 16-bit inputs are float32.
bool infers_other_dtypes(const c10::FunctionSchema& schema, const std::vector<IValue>& arguments) {
  bool normalises = schema.name().find("_norm") != std::string::npos;
  return normalises && arguments[0].isTensor() && arguments[0].toTensor().element_size() == 2;
}

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  size_t count = schema.arguments().size();
  std::vector<IValue> arguments(stack->end() - count, stack->end());
  stack->resize(stack->size() - count);
  DeviceIndex index = find_device(arguments);
  auto push = [&](std::vector<IValue> results) {
    for (IValue& value : results) stack->push_back(std::move(value));
  };

  std::unordered_map<c10::TensorImpl*, Tensor> metas;
  std::vector<IValue> inferred;
  bool known = returns_tensors(schema) && !infers_other_dtypes(schema, arguments);
  if (known) {
    try {
      Convert convert = [&](const Tensor& tensor) {
        if (!is_ours(tensor)) return tensor;
        auto [place, added] = metas.emplace(tensor.unsafeGetTensorImpl(), Tensor());
        if (added) place->second = make_meta(tensor);
        return place->second;
      };
      for (size_t n = 0; n < count; ++n)
        inferred.push_back(
            is_generator(schema.arguments()[n]) ? IValue() : convert_value(arguments[n], convert, DeviceType::Meta));
      call_on_cpu(op, inferred);
    } catch (const std::exception&) {
      known = false;  // shapes depend on values, or the arguments are wrong: the CPU's operator says so
    }
  }
  if (!known) return push(run_waiting(op, arguments, index));

  for (size_t n = 0; n < count; ++n) {  // results that the caller provides are resized
    const auto* info = schema.arguments()[n].alias_info();
    if (!info || !info->isWrite()) continue;
    for (const Tensor& tensor : list_tensors(arguments[n])) {
      if (!is_ours(tensor)) continue;
      const Tensor& meta = metas.at(tensor.unsafeGetTensorImpl());
      if (meta.sizes() == tensor.sizes()) continue;
      resize_on_device(tensor, meta.sizes(), std::nullopt);
    }
  }
  std::vector<IValue> results;
  std::vector<std::vector<Tensor>> targets;
  for (size_t n = 0; n < schema.returns().size(); ++n) {
    int alias = find_alias(schema, n);
    targets.emplace_back();
    if (alias >= 0) {
      results.push_back(arguments[alias]);
      continue;
    }
    results.push_back(convert_value(inferred.at(n), [&](const Tensor& meta) {
      Tensor made = meta.defined() ? make_empty(meta.sizes(), meta.strides(), meta.scalar_type(), index) : Tensor();
      targets.back().push_back(made.defined() ? view_in_queue(made) : Tensor());
      return made;
    }, TYPE));
  }
  std::vector<IValue> values = make_cpu_arguments(schema, arguments, index, false);
  launch(get_queue(index), settings().operator_ns, [op, values, targets](Queue&) mutable {
    try {
      std::vector<IValue> written = settings().wrong_results ? values : std::vector<IValue>();
      call_on_cpu(op, values);
      copy_results(values, targets);
      if (written.empty()) return;
      at::AutoDispatchBelowADInplaceOrView guard;
      for (size_t n = 0; n < written.size(); ++n)
        if (op.schema().arguments()[n].alias_info())
          for (Tensor& tensor : list_tensors(written[n])) if (tensor.is_floating_point()) tensor.mul_(1.01);
    } catch (const std::exception& failure) {
      TORCH_CHECK(false, op.schema().name(), ": ", failure.what());
    }
  });
  push(std::move(results));
}

int64_t compute_copy_ns(const Tensor& tensor) {
  int64_t speed = settings().copy_bytes_per_second;
  return speed > 0 ? int64_t(double(tensor.nbytes()) * 1e9 / double(speed)) : 0;
}

Tensor copy_from(const Tensor& source, const Tensor& target, bool non_blocking) {
  TORCH_CHECK(is_ours(source) || is_ours(target), "standin: no tensor of the device");
  if (target.numel() == 0) return target;
  auto prepare = [](const Tensor& tensor) {
    Tensor view = is_ours(tensor) ? view_in_queue(tensor) : hold_host_memory(tensor);
    if (tensor.is_conj()) view._set_conj(true);
    if (tensor.is_neg()) view._set_neg(true);
    return view;
  };
  Tensor from = prepare(source), to = prepare(target);
  auto body = [from, to](Queue&) {
    at::AutoDispatchBelowADInplaceOrView guard;
    to.copy_(from);
  };
  if (is_ours(source) && is_ours(target)) {
    Queue& first = get_queue(source.device().index());
    if (source.device() == target.device()) {
      launch(first, settings().operator_ns, body);
      return target;
    }
    Queue& second = get_queue(target.device().index());
    auto ready = std::make_shared<EventState>(), done = std::make_shared<EventState>();
    wait_event(ready, record_event(ready, second), first);
    launch(first, compute_copy_ns(source), body);
    wait_event(done, record_event(done, first), second);
    return target;
  }
  Queue& queue = get_queue((is_ours(source) ? source : target).device().index());
  const Tensor& host = is_ours(source) ? target : source;
  if (non_blocking && pinned().contains(host.const_data_ptr()))
    launch(queue, compute_copy_ns(target), body);
  else
    run_and_wait(queue, compute_copy_ns(target), body);
  return target;
}

Tensor copy_from_and_resize(const Tensor& source, const Tensor& target) {
  if (source.sizes() != target.sizes()) target.resize_(source.sizes());
  return copy_from(source, target, false);
}

c10::Scalar read_scalar(const Tensor& self) {
  Tensor view = view_in_queue(self);
  c10::Scalar value;
  run_and_wait(get_queue(self.device().index()), 0, [&](Queue&) { value = at::_local_scalar_dense(view); });
  return value;
}

void record_stream(Tensor& self, Stream stream) { allocator().recordStream(self.storage().data_ptr(), stream); }

Tensor& set_storage(Tensor& self, c10::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

Tensor& set_source_storage(Tensor& self, c10::Storage source) {
  int64_t elements = int64_t(source.nbytes() / self.dtype().itemsize());
  return at::native::set_storage_cpu_(self, std::move(source), 0, {elements}, {});
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_on_device);
  m.impl("empty_strided", &empty_strided_on_device);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("resize_", &resize_on_device);
  m.impl("set_.source_Storage", &set_source_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &read_scalar);
  m.impl("record_stream", &record_stream);
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&run_operator>());
  m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

// Copies resolve conjugated and negated views themselves; torch would resolve them with a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>()); }

C10_REGISTER_GUARD_IMPL(PrivateUse1, StandinGuard)

// Captured work, which one launch submits.
struct StandinGraph final : at::GraphImplInterface {
  Capture capture;
  explicit StandinGraph(const at::GraphImplArgs&) {}
  ~StandinGraph() override { reset(); }
  void capture_begin(c10::MempoolId_t, at::GraphCaptureMode) override {
    TORCH_CHECK(!capturing, "standin: a graph is being captured already");
    capturing = &capture;
  }
  void capture_end() override { capturing = nullptr; }
  void instantiate() override {}
  void replay() override {
    Queue& queue = get_queue(current_device);
    int64_t duration_ns = 0;
    for (auto& [ns, run] : capture.work) duration_ns += ns;
    launch(queue, duration_ns, [work = capture.work](Queue& q) {
      for (auto& [ns, run] : work) run(q);
    });
  }
  void reset() override {
    capture.work.clear();
    for (Block* block : capture.freed) StandinAllocator::release(block);
    capture.freed.clear();
  }
  c10::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {}
};

const bool registered = [] {
  c10::SetAllocator(TYPE, &allocator());
  at::setHostAllocator(TYPE, &pinned());
  at::RegisterPrivateUse1HooksInterface(new StandinHooks());
  return true;
}();

}  // namespace

namespace at {
REGISTER_GRAPH_IMPL(STANDIN, StandinGraph)  // the name of the device in capitals
}

// ---- configuration from Python (ctypes) ----------------------------------------------------------------------------

#define SETTING(name) \
  extern "C" void standin_set_##name(int64_t value) { settings().name = value; }

SETTING(operator_ns)
SETTING(launch_ns)
SETTING(copy_bytes_per_second)
SETTING(memory_bytes)
SETTING(lacks_float64)
SETTING(event_rate_percent)
SETTING(serial_copies)
SETTING(wrong_results)
SETTING(lost_device)
SETTING(lost_after_launches)

extern "C" int64_t standin_count_devices() { return count_devices(); }
extern "C" int64_t standin_count_launches() { return launches; }
extern "C" int standin_is_initialised() { return initialised && !forked_after_use; }
extern "C" int standin_is_bad_fork() { return forked_after_use; }
extern "C" void standin_seed(uint64_t seed) {
  for (DeviceIndex index = 0; index < count_devices(); ++index) {
    at::Generator generator = get_default_generator(index);
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}
