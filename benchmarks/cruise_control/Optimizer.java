import com.linkedin.cruisecontrol.monitor.sampling.aggregator.AggregatedMetricValues;
import com.linkedin.cruisecontrol.monitor.sampling.aggregator.MetricValues;
import com.linkedin.kafka.cruisecontrol.analyzer.AnalyzerUtils;
import com.linkedin.kafka.cruisecontrol.analyzer.OptimizationOptions;
import com.linkedin.kafka.cruisecontrol.analyzer.goals.Goal;
import com.linkedin.kafka.cruisecontrol.common.Resource;
import com.linkedin.kafka.cruisecontrol.config.BrokerCapacityInfo;
import com.linkedin.kafka.cruisecontrol.config.KafkaCruiseControlConfig;
import com.linkedin.kafka.cruisecontrol.model.Broker;
import com.linkedin.kafka.cruisecontrol.model.ClusterModel;
import com.linkedin.kafka.cruisecontrol.model.Partition;
import com.linkedin.kafka.cruisecontrol.model.Replica;
import com.linkedin.kafka.cruisecontrol.monitor.ModelGeneration;
import com.linkedin.kafka.cruisecontrol.monitor.metricdefinition.KafkaMetricDef;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs Cruise Control's own goals on the input of benchmarks/cruise_control_beside.py, which compiles and calls it:
 * {@code Optimizer INPUT OUTPUT fast|regular}. It prints the CPU seconds and the result of each goal.
 *
 * <p>INPUT has lines {@code broker ID RACK live|dead IN OUT DISK}, then {@code partition TOPIC NUMBER ID,ID IN OUT SIZE}:
 * the leader first, kilobytes a second, and megabytes. OUTPUT gets {@code TOPIC NUMBER ID,ID} in the same order.
 */
public final class Optimizer {
  private static final String GOALS = "com.linkedin.kafka.cruisecontrol.analyzer.goals.";
  /** In their order by default, without those of CPU: its model of a follower's CPU is another one. */
  private static final List<String> NAMES = List.of(
      "RackAwareGoal", "ReplicaCapacityGoal", "DiskCapacityGoal", "NetworkInboundCapacityGoal",
      "NetworkOutboundCapacityGoal", "ReplicaDistributionGoal", "PotentialNwOutGoal", "DiskUsageDistributionGoal",
      "NetworkInboundUsageDistributionGoal", "NetworkOutboundUsageDistributionGoal", "TopicReplicaDistributionGoal",
      "LeaderReplicaDistributionGoal", "LeaderBytesInDistributionGoal");
  private static final List<Long> WINDOWS = Collections.singletonList(1L);

  private Optimizer() {
  }

  public static void main(String[] args) throws Exception {
    ClusterModel model = read(Path.of(args[0]));
    OptimizationOptions options =
        new OptimizationOptions(Set.of(), Set.of(), Set.of(), false, Set.of(), false, args[2].equals("fast"));
    Set<Goal> reached = new HashSet<>();
    for (Goal goal : goals()) {
      double began = cpuSeconds();
      String result;
      try {
        result = goal.optimize(model, reached, options) ? "reached" : "not reached";
      } catch (com.linkedin.kafka.cruisecontrol.exception.OptimizationFailureException e) {
        result = "failed: " + e.getMessage();
      }
      reached.add(goal);
      System.out.printf(Locale.ROOT, "%s %.2f %s%n", goal.name(), cpuSeconds() - began, result);
    }
    write(model, Path.of(args[0]), Path.of(args[1]));
  }

  private static List<Goal> goals() {
    Properties settings = new Properties();
    settings.setProperty("bootstrap.servers", "localhost:1");
    settings.setProperty("max.replicas.per.broker", "20000");
    settings.setProperty("default.goals", String.join(",", NAMES.stream().map(name -> GOALS + name).toList()));
    settings.setProperty("hard.goals", String.join(",", NAMES.stream().limit(5).map(name -> GOALS + name).toList()));
    settings.setProperty("self.healing.goals", "");
    settings.setProperty("anomaly.detection.goals", GOALS + NAMES.get(0));
    return AnalyzerUtils.getDefaultGoalsByPriority(new KafkaCruiseControlConfig(settings));
  }

  private static ClusterModel read(Path input) throws IOException {
    ClusterModel model = new ClusterModel(new ModelGeneration(0, 0L), 1.0);
    Set<Integer> dead = new HashSet<>();
    try (BufferedReader lines = Files.newBufferedReader(input)) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.split(" ");
        if (words[0].equals("broker")) {
          int id = Integer.parseInt(words[1]);
          model.createRack(words[2]);
          Map<Resource, Double> capacity = new EnumMap<>(Resource.class);
          capacity.put(Resource.CPU, 100.0);
          capacity.put(Resource.NW_IN, Double.parseDouble(words[4]));
          capacity.put(Resource.NW_OUT, Double.parseDouble(words[5]));
          capacity.put(Resource.DISK, Double.parseDouble(words[6]));
          model.createBroker(words[2], "host" + id, id, new BrokerCapacityInfo(capacity), false);
          if (words[3].equals("dead")) {
            dead.add(id);
          }
        } else {
          place(model, words);
        }
      }
    }
    dead.forEach(id -> model.setBrokerState(id, Broker.State.DEAD));
    return model;
  }

  private static void place(ClusterModel model, String[] words) {
    TopicPartition partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
    int[] ids = Arrays.stream(words[3].split(",")).mapToInt(Integer::parseInt).toArray();
    for (int at = 0; at < ids.length; at++) {
      model.createReplica(model.broker(ids[at]).rack().id(), ids[at], partition, at, at == 0);
    }
    for (int at = 0; at < ids.length; at++) {
      double out = at == 0 ? Double.parseDouble(words[5]) : 0.0;
      AggregatedMetricValues load = new AggregatedMetricValues();
      set(load, Resource.CPU, 1e-6);
      set(load, Resource.NW_IN, Double.parseDouble(words[4]));
      set(load, Resource.NW_OUT, out);
      set(load, Resource.DISK, Double.parseDouble(words[6]));
      model.setReplicaLoad(model.broker(ids[at]).rack().id(), ids[at], partition, load, WINDOWS);
    }
  }

  private static void set(AggregatedMetricValues load, Resource resource, double value) {
    double rest = value;
    for (short id : KafkaMetricDef.resourceToMetricIds(resource)) {
      MetricValues values = new MetricValues(1);
      values.set(0, rest);
      load.add(id, values);
      rest = 0.0;
    }
  }

  private static void write(ClusterModel model, Path input, Path output) throws IOException {
    try (BufferedReader lines = Files.newBufferedReader(input); PrintWriter out = new PrintWriter(output.toFile())) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.split(" ");
        if (words[0].equals("partition")) {
          Partition partition = model.partition(new TopicPartition(words[1], Integer.parseInt(words[2])));
          StringBuilder ids = new StringBuilder().append(partition.leader().broker().id());
          for (Replica follower : partition.followers()) {
            ids.append(',').append(follower.broker().id());
          }
          out.println(words[1] + " " + words[2] + " " + ids);
        }
      }
    }
  }

  private static double cpuSeconds() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime() / 1e9;
  }
}
